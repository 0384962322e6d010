/* Closes all descriptors in the middle of a handshake, as a process does that becomes a daemon, and opens files of its
 * own. Prints the number of files that it has lost.
 *
 * PORT: of a server that says nothing. FORKS: 1 if a child does it. LOOKS: 1 if the manager's decision is looked for
 * before. FREES: 1 if the connection is freed, 0 if the process waits for something else. */
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client.h"

enum { FILES = 40 };

static SSL *ssl;

static void closes(int frees)
{
    int lost = 0;
    for (int at = 3; at < 3 + FILES; at++)
        close(at);
    for (int at = 3; at < 3 + FILES; at++)
        if (open("/dev/null", O_RDWR) != at)
            lost = -1;
    if (frees)
        SSL_free(ssl);
    for (int round = 0; round < 4; round++)
        poll(NULL, 0, 300);
    for (int at = 3; at < 3 + FILES; at++)
        lost += fcntl(at, F_GETFD) < 0;
    printf("%d lost\n", lost);
    fflush(stdout);
}

int main(int count, char **words)
{
    if (count != 5)
        return 2;
    int forks = atoi(words[2]), looks = atoi(words[3]), frees = atoi(words[4]);
    SSL_CTX *context = trusting(NULL);
    int plain = connected_to(words[1]);
    fcntl(plain, F_SETFL, O_NONBLOCK);
    ssl = over(plain, context);
    int done = SSL_connect(ssl);
    if (looks) {
        usleep(300 * 1000);
        done = SSL_connect(ssl);
    }
    printf("%d\n", SSL_get_error(ssl, done));
    fflush(stdout);
    if (!forks) {
        closes(frees);
        return 0;
    }
    pid_t child = fork();
    if (child == 0) {
        closes(frees);
        _exit(0);
    }
    waitpid(child, NULL, 0);
    return 0;
}
