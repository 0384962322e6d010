/* A TLS server that does not read OpenSSL's configuration: deaf PORT CERTIFICATE-AND-KEY
   With OWN_INFO it reads the configuration, and gives each connection an info callback, as coturn does. */

#include <unistd.h>

#include <openssl/ssl.h>

#include "listener.h"

#ifdef OWN_INFO
enum { START = 0 };

static void informed(const SSL *connection, int what, int value)
{
    (void)connection, (void)what, (void)value;
}
#else
enum { START = OPENSSL_INIT_NO_LOAD_CONFIG };
#endif

int main(int count, char **words)
{
    static const char answer[] = "HTTP/1.0 200 OK\r\n\r\ndeaf\n";
    if (count != 3 || OPENSSL_init_ssl(START, NULL) != 1)
        return 1;
    SSL_CTX *context = SSL_CTX_new(TLS_server_method());
    SSL_CTX_set_options(context, SSL_OP_NO_TICKET);
    int listener = listen_on(words[1]);
    if (listener < 0
        || SSL_CTX_use_certificate_chain_file(context, words[2]) != 1
        || SSL_CTX_use_PrivateKey_file(context, words[2], SSL_FILETYPE_PEM) != 1)
        return 1;
    for (int left = 200; left > 0; left--) {
        char request[4096];
        int stream = accept(listener, NULL, NULL);
        SSL *connection = SSL_new(context);
#ifdef OWN_INFO
        SSL_set_info_callback(connection, informed);
#endif
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
