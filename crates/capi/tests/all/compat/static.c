/* An OpenSSL server without a shared libssl. */
#include <arpa/inet.h>
#include <openssl/ssl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char answer[] = "HTTP/1.0 200 OK\r\n\r\nstatic\n";

static int listening(const char *port)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(atoi(port))};
    int listener = socket(AF_INET, SOCK_STREAM, 0), yes = 1;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (bind(listener, (struct sockaddr *)&at, sizeof at) || listen(listener, 64)) exit(1);
    return listener;
}

int main(int count, char **arguments)
{
    SSL_CTX *context = SSL_CTX_new(TLS_server_method());
    char request[4096];
    if (count != 3 || SSL_CTX_use_certificate_chain_file(context, arguments[2]) != 1
        || SSL_CTX_use_PrivateKey_file(context, arguments[2], SSL_FILETYPE_PEM) != 1)
        return 1;
    signal(SIGPIPE, SIG_IGN);
    for (int listener = listening(arguments[1]);;) {
        int connection = accept(listener, NULL, NULL);
        SSL *tls = SSL_new(context);
        SSL_set_fd(tls, connection);
        if (SSL_accept(tls) == 1 && SSL_read(tls, request, sizeof request) > 0) {
            SSL_write(tls, answer, strlen(answer));
            SSL_shutdown(tls);
        }
        SSL_free(tls);
        close(connection);
    }
}
