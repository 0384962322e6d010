/* Connects with a socket that sends signals (O_ASYNC), and waits for nothing else. Prints whether it is connected.
 *
 * PORT, AUTHORITY: of the server. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "client.h"

int main(int count, char **words)
{
    if (count != 3)
        return 2;
    sigset_t awaited;
    sigemptyset(&awaited);
    sigaddset(&awaited, SIGIO);
    sigprocmask(SIG_BLOCK, &awaited, NULL);
    SSL_CTX *context = trusting(words[2]);
    int plain = connected_to(words[1]), done;
    fcntl(plain, F_SETOWN, getpid());
    fcntl(plain, F_SETFL, O_NONBLOCK | O_ASYNC);
    SSL *ssl = over(plain, context);
    while ((done = SSL_connect(ssl)) != 1) {
        struct timespec longest = {.tv_sec = 10};
        if (SSL_get_error(ssl, done) != SSL_ERROR_WANT_READ || sigtimedwait(&awaited, NULL, &longest) < 0) {
            puts("not connected");
            return 0;
        }
    }
    puts("connected");
    return 0;
}
