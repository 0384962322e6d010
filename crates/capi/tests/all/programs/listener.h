/* What the test servers have in common: the listening socket, and one connection after the other. */

#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include <openssl/ssl.h>

/* Returns a socket that listens on a port of the loopback address, or -1. A client that is gone raises no signal. */
static int listen_on(const char *port)
{
    struct sockaddr_in address = {.sin_family = AF_INET};
    int reuse = 1, listener = socket(AF_INET, SOCK_STREAM, 0);
    address.sin_port = htons((uint16_t)atoi(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &reuse, sizeof reuse);
    signal(SIGPIPE, SIG_IGN);
    if (bind(listener, (struct sockaddr *)&address, sizeof address) != 0 || listen(listener, 64) != 0)
        return -1;
    return listener;
}

/* Serves one connection after the other, for ever. */
__attribute__((unused)) static void serve_each(int listener, SSL_CTX *context, void (*answer)(SSL *))
{
    for (;;) {
        int stream = accept(listener, NULL, NULL);
        SSL *connection = SSL_new(context);
        SSL_set_fd(connection, stream);
        answer(connection);
        SSL_free(connection);
        close(stream);
    }
}
