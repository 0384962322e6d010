/* Connects with a non-blocking socket, and waits for it by epoll_pwait2. Prints whether it is connected after ten
 * seconds. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>

#include "client.h"

int main(int count, char **words)
{
    if (count != 3)
        return 2;
    SSL_CTX *context = trusting(words[2]);
    int plain = connected_to(words[1]), instance = epoll_create1(0);
    fcntl(plain, F_SETFL, O_NONBLOCK);
    struct epoll_event event = {.events = EPOLLIN | EPOLLET | EPOLLRDHUP};
    epoll_ctl(instance, EPOLL_CTL_ADD, plain, &event);
    SSL *ssl = over(plain, context);
    int done;
    while ((done = SSL_connect(ssl)) != 1) {
        struct timespec longest = {.tv_sec = 10};
        if (SSL_get_error(ssl, done) != SSL_ERROR_WANT_READ
            || epoll_pwait2(instance, &event, 1, &longest, NULL) != 1) {
            puts("not connected");
            return 0;
        }
    }
    puts("connected");
    return 0;
}
