/* Connects with a non-blocking socket, and forks when the ClientHello is sent. Prints whether the connection works.
 *
 * PORT, AUTHORITY: of the server. HOW: what the child does. "waits": it waits for something else, after the end of
 * patience. "frees": it frees what it has inherited of the connection. "goes-on": it goes on with the connection, and
 * the parent ends at once. "is-waited-for": the same, and the parent keeps the socket and waits, after the end of
 * patience, too. */
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client.h"

static SSL *ssl;
static int plain;

/* Waits until a call may be made again. Returns 0 if it has failed. */
static int again(int done)
{
    int why = SSL_get_error(ssl, done);
    struct pollfd asked = {.fd = plain, .events = why == SSL_ERROR_WANT_WRITE ? POLLOUT : POLLIN};
    if (why != SSL_ERROR_WANT_READ && why != SSL_ERROR_WANT_WRITE)
        return 0;
    return poll(&asked, 1, 10 * 1000) == 1;
}

static const char *works(int done)
{
    const char *request = "GET /page HTTP/1.0\r\n\r\n";
    char answer[4096];
    int has_answer = 0;
    while (done != 1) {
        if (!again(done))
            return "not connected";
        done = SSL_connect(ssl);
    }
    usleep(1500 * 1000);
    SSL_write(ssl, request, strlen(request));
    do {
        done = SSL_read(ssl, answer, sizeof answer);
        has_answer |= done > 0;
    } while (done > 0 || again(done));
    return has_answer ? "works" : "no answer";
}

int main(int count, char **words)
{
    if (count != 4)
        return 2;
    SSL_CTX *context = trusting(words[2]);
    plain = connected_to(words[1]);
    fcntl(plain, F_SETFL, O_NONBLOCK);
    ssl = over(plain, context);
    int done = SSL_connect(ssl), is_waited_for = strcmp(words[3], "is-waited-for") == 0;
    int goes_on = is_waited_for || strcmp(words[3], "goes-on") == 0;
    pid_t child = fork();
    if (child == 0) {
        if (goes_on) {
            usleep(100 * 1000);
            puts(works(done));
            fflush(stdout);
        } else if (strcmp(words[3], "waits") == 0) {
            usleep(700 * 1000);
            poll(NULL, 0, 10);
        } else {
            usleep(100 * 1000);
            SSL_free(ssl);
        }
        _exit(0);
    }
    if (is_waited_for) {
        while (waitpid(child, NULL, WNOHANG) == 0)
            poll(NULL, 0, 100);
    }
    if (goes_on)
        _exit(0);
    if (strcmp(words[3], "frees") == 0)
        waitpid(child, NULL, 0);
    puts(works(done));
    waitpid(child, NULL, 0);
    return 0;
}
