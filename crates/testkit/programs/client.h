/* The beginning of a TLS client's life, which the C programs have in common. */
#ifndef CLIENT_H
#define CLIENT_H
#include <arpa/inet.h>
#include <openssl/ssl.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

/* Connects to a port of this machine. Returns the socket, or ends the program. */
static inline int connected_to(const char *port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(atoi(port))};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int plain = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(plain, (struct sockaddr *)&address, sizeof address) != 0)
        _exit(3);
    return plain;
}

/* Returns the settings of a client that verifies, and trusts the authority in this file, if there is one. */
static inline SSL_CTX *trusting(const char *authority)
{
    SSL_CTX *context = SSL_CTX_new(TLS_client_method());
    SSL_CTX_set_verify(context, SSL_VERIFY_PEER, NULL);
    if (authority)
        SSL_CTX_load_verify_locations(context, authority, NULL);
    return context;
}

/* Returns a connection to localhost over this socket, before its handshake. */
static inline SSL *over(int plain, SSL_CTX *context)
{
    SSL *ssl = SSL_new(context);
    SSL_set_fd(ssl, plain);
    SSL_set_tlsext_host_name(ssl, "localhost");
    return ssl;
}
#endif
