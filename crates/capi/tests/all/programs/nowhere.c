/* Passes addresses where nothing is to functions of the C library, and prints their results. */

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

static void show(const char *what, long result)
{
    printf("%s: %ld %s\n", what, result, result < 0 ? strerror(errno) : "");
}

int main(void)
{
    int pair[2];
    char *pages = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char *none = pages + 4096, *request = none - 8;
    struct iovec piece = {none, 64};
    struct epoll_event event = {.events = EPOLLIN};
    if (pages == MAP_FAILED || mprotect(none, 4096, PROT_NONE) != 0 || socketpair(AF_UNIX, SOCK_STREAM, 0, pair) != 0)
        return 1;
    int polled = epoll_create1(0);
    memcpy(request, "CONNECT ", 8);
    show("write", write(pair[0], none, 64));
    show("write of what is there", write(pair[0], request, 8));
    show("write past what is there", write(pair[0], request, 64));
    show("send", send(pair[0], none, 64, 0));
    show("writev", writev(pair[0], &piece, 1));
    show("writev from nowhere", writev(pair[0], (struct iovec *)none, 2));
    show("sendmsg from nowhere", sendmsg(pair[0], (struct msghdr *)none, 0));
    show("EPOLL_CTL_ADD", epoll_ctl(polled, EPOLL_CTL_ADD, pair[0], &event));
    show("EPOLL_CTL_MOD from nowhere", epoll_ctl(polled, EPOLL_CTL_MOD, pair[0], (struct epoll_event *)none));
    show("EPOLL_CTL_DEL from nowhere", epoll_ctl(polled, EPOLL_CTL_DEL, pair[0], (struct epoll_event *)none));
    return 0;
}
