/* A server and a client of OpenSSL's own QUIC, and a server of TLS beside them, for OpenSSL 3.5 and later:
     quic serve PORT CERTIFICATE-AND-KEY     serves one client
     quic connect PORT AUTHORITY             connects once
     quic beside first|second CERTIFICATE-AND-KEY
       makes a context of QUIC before or after that of a server of TLS, which then serves three clients in this process
   It declares what older headers do not. */

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <openssl/bio.h>
#include <openssl/ssl.h>

extern const SSL_METHOD *OSSL_QUIC_client_method(void);
extern const SSL_METHOD *OSSL_QUIC_server_method(void);
extern SSL *SSL_new_listener(SSL_CTX *context, uint64_t flags);
extern SSL *SSL_accept_connection(SSL *listener, uint64_t flags);
extern int SSL_listen(SSL *listener);
extern int SSL_handle_events(SSL *of);
extern int SSL_stream_conclude(SSL *stream, uint64_t flags);
extern int SSL_set1_initial_peer_addr(SSL *connection, const BIO_ADDR *address);

static int choose(SSL *connection, const unsigned char **out, unsigned char *bytes, const unsigned char *offered,
                  unsigned int length, void *with)
{
    (void)connection, (void)length, (void)with;
    *out = offered + 1;
    *bytes = offered[0];
    return SSL_TLSEXT_ERR_OK;
}

static SSL_CTX *server(const SSL_METHOD *method, const char *pair)
{
    SSL_CTX *context = SSL_CTX_new(method);
    if (context == NULL || SSL_CTX_use_certificate_chain_file(context, pair) != 1
        || SSL_CTX_use_PrivateKey_file(context, pair, SSL_FILETYPE_PEM) != 1)
        exit(2);
    return context;
}

static int serve(const char *port, const char *pair)
{
    SSL_CTX *context = server(OSSL_QUIC_server_method(), pair);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(port))};
    int datagrams = socket(AF_INET, SOCK_DGRAM, 0);
    char request[100];
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    SSL_CTX_set_alpn_select_cb(context, choose, NULL);
    SSL *listener = SSL_new_listener(context, 0);
    if (bind(datagrams, (struct sockaddr *)&address, sizeof address) != 0 || listener == NULL
        || SSL_set_fd(listener, datagrams) != 1 || SSL_listen(listener) != 1)
        return 3;
    puts("serving");
    fflush(stdout);
    SSL *connection = SSL_accept_connection(listener, 0);
    int done = SSL_do_handshake(connection), bytes = SSL_read(connection, request, sizeof request);
    SSL_write(connection, "hello\n", 6);
    SSL_stream_conclude(connection, 0);
    printf("handshake %d, read %d, resumed %d\n", done, bytes, SSL_session_reused(connection));
    for (int left = 20; left > 0; left--) {
        SSL_handle_events(connection);
        usleep(20000);
    }
    SSL_free(connection);
    SSL_free(listener);
    SSL_CTX_free(context);
    return 0;
}

static int connect_to(const char *port, const char *authority)
{
    SSL_CTX *context = SSL_CTX_new(OSSL_QUIC_client_method());
    struct in_addr loopback = {htonl(INADDR_LOOPBACK)};
    BIO_ADDR *address = BIO_ADDR_new();
    char answer[100];
    SSL_CTX_load_verify_locations(context, authority, NULL);
    SSL_CTX_set_verify(context, SSL_VERIFY_PEER, NULL);
    BIO_ADDR_rawmake(address, AF_INET, &loopback, sizeof loopback, htons((uint16_t)atoi(port)));
    SSL *connection = SSL_new(context);
    SSL_set1_host(connection, "localhost");
    SSL_set_tlsext_host_name(connection, "localhost");
    SSL_set_alpn_protos(connection, (const unsigned char *)"\2hi", 3);
    SSL_set_fd(connection, socket(AF_INET, SOCK_DGRAM, 0));
    SSL_set1_initial_peer_addr(connection, address);
    int done = SSL_connect(connection);
    SSL_write(connection, "hi", 2);
    int bytes = SSL_read(connection, answer, sizeof answer);
    printf("handshake %d, read %d, %s\n", done, bytes, SSL_get_version(connection));
    SSL_shutdown(connection);
    SSL_free(connection);
    BIO_ADDR_free(address);
    SSL_CTX_free(context);
    return 0;
}

/* Makes objects of QUIC and frees them. */
static SSL_CTX *quic(const char *pair)
{
    SSL_CTX *context = server(OSSL_QUIC_server_method(), pair);
    for (int left = 50; left > 0; left--)
        SSL_free(SSL_new_listener(context, 0));
    return context;
}

/* Shakes hands in memory. Returns whether it resumed, or -1. */
static int visit(SSL_CTX *served, SSL_CTX *client, SSL_SESSION **session)
{
    SSL *one = SSL_new(served), *other = SSL_new(client);
    BIO *near, *far;
    char byte;
    BIO_new_bio_pair(&near, 0, &far, 0);
    SSL_set_bio(one, near, near);
    SSL_set_bio(other, far, far);
    SSL_set_accept_state(one);
    SSL_set_connect_state(other);
    SSL_set_session(other, *session);
    for (int left = 20; left > 0; left--) {
        SSL_do_handshake(other);
        SSL_do_handshake(one);
    }
    SSL_write(one, "x", 1);
    if (SSL_read(other, &byte, 1) != 1)
        return -1;
    int resumed = SSL_session_reused(other);
    SSL_SESSION_free(*session);
    *session = SSL_get1_session(other);
    SSL_shutdown(other);
    SSL_shutdown(one);
    SSL_free(one);
    SSL_free(other);
    return resumed;
}

static int beside(int is_first, const char *pair)
{
    SSL_CTX *first = is_first ? quic(pair) : NULL, *served = server(TLS_server_method(), pair);
    SSL_CTX *second = is_first ? NULL : quic(pair), *client = SSL_CTX_new(TLS_client_method());
    SSL_SESSION *session = NULL;
    for (int left = 3; left > 0; left--)
        printf("resumed %d\n", visit(served, client, &session));
    SSL_SESSION_free(session);
    SSL_CTX_free(first);
    SSL_CTX_free(second);
    SSL_CTX_free(served);
    SSL_CTX_free(client);
    return 0;
}

int main(int count, char **words)
{
    if (count != 4)
        return 1;
    if (strcmp(words[1], "serve") == 0)
        return serve(words[2], words[3]);
    if (strcmp(words[1], "connect") == 0)
        return connect_to(words[2], words[3]);
    return beside(strcmp(words[2], "first") == 0, words[3]);
}
