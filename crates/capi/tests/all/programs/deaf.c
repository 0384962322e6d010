/* A TLS server that reads no configuration of OpenSSL's: deaf PORT CERTIFICATE-AND-KEY */

#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include <openssl/ssl.h>

int main(int count, char **words)
{
    static const char answer[] = "HTTP/1.0 200 OK\r\n\r\ndeaf\n";
    struct sockaddr_in address = {.sin_family = AF_INET};
    int reuse = 1;
    if (count != 3 || OPENSSL_init_ssl(OPENSSL_INIT_NO_LOAD_CONFIG, NULL) != 1)
        return 1;
    SSL_CTX *context = SSL_CTX_new(TLS_server_method());
    SSL_CTX_set_options(context, SSL_OP_NO_TICKET);
    address.sin_port = htons((uint16_t)atoi(words[1]));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &reuse, sizeof reuse);
    signal(SIGPIPE, SIG_IGN);
    if (SSL_CTX_use_certificate_chain_file(context, words[2]) != 1
        || SSL_CTX_use_PrivateKey_file(context, words[2], SSL_FILETYPE_PEM) != 1
        || bind(listener, (struct sockaddr *)&address, sizeof address) != 0
        || listen(listener, 64) != 0)
        return 1;
    for (int left = 200; left > 0; left--) {
        char request[4096];
        int stream = accept(listener, NULL, NULL);
        SSL *connection = SSL_new(context);
        SSL_set_fd(connection, stream);
        if (SSL_accept(connection) == 1 && SSL_read(connection, request, sizeof request) > 0) {
            SSL_write(connection, answer, sizeof answer - 1);
            SSL_shutdown(connection);
        }
        SSL_free(connection);
        close(stream);
    }
    return 0;
}
