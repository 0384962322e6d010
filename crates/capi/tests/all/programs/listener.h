/* What the test servers have in common: the listening socket, one connection after the other, a request and its answer. */

#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
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

/* Shakes hands with a client, and reads its request. Returns 0 if it makes none. */
__attribute__((unused)) static int has_request(SSL *connection)
{
    char request[4096];
    return SSL_accept(connection) == 1 && SSL_read(connection, request, sizeof request) > 0;
}

/* Answers with a line, and ends the connection. */
__attribute__((unused, format(printf, 2, 3))) static void reply(SSL *connection, const char *format, ...)
{
    char text[256] = "HTTP/1.0 200 OK\r\n\r\n";
    const size_t begin = 19;
    va_list values;
    va_start(values, format);
    int length = vsnprintf(text + begin, sizeof text - begin, format, values);
    va_end(values);
    SSL_write(connection, text, (int)begin + length);
    SSL_shutdown(connection);
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
