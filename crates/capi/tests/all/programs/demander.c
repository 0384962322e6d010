/* A TLS server that demands client certificates:
 *
 *   demander PORT CERTIFICATE-AND-KEY AUTHORITY [KEYS]
 *
 * It does so in its certificate callback, as lighttpd does, which OpenSSL calls in full handshakes alone. With KEYS the
 * whole context demands them, and the keys of its tickets are this text. It demands none if AUTHORITY is -.
 * Compiled with MODULE it is only the verify callback that it has with KEYS. The answer is the client, somebody or
 * nobody. */

#include <openssl/ssl.h>

#ifdef MODULE
int check(int accepted, X509_STORE_CTX *chain)
{
    (void)chain;
    return accepted;
}
#else
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "listener.h"

int check(int accepted, X509_STORE_CTX *chain);

#define DEMANDED (SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT)

static int demand(SSL *connection, void *argument)
{
    (void)argument;
    SSL_set_verify(connection, DEMANDED, NULL);
    return 1;
}

static void answer(SSL *connection)
{
    if (!has_request(connection))
        return;
    const char *who = SSL_get0_peer_certificate(connection) != NULL ? "somebody" : "nobody";
    reply(connection, "%s\n", who);
}

int main(int count, char **words)
{
    char keys[80] = {0};
    if (count < 4)
        return 1;
    SSL_CTX *context = SSL_CTX_new(TLS_server_method());
    int listener = listen_on(words[1]);
    if (listener < 0
        || SSL_CTX_use_certificate_chain_file(context, words[2]) != 1
        || SSL_CTX_use_PrivateKey_file(context, words[2], SSL_FILETYPE_PEM) != 1
        || SSL_CTX_set_session_id_context(context, (const unsigned char *)"demander", 8) != 1)
        return 1;
    if (strcmp(words[3], "-") != 0) {
        if (SSL_CTX_load_verify_locations(context, words[3], NULL) != 1)
            return 1;
        if (count == 4)
            SSL_CTX_set_cert_cb(context, demand, NULL);
        else
            SSL_CTX_set_verify(context, DEMANDED, check);
    }
    if (count == 5) {
        strncpy(keys, words[4], sizeof keys);
        SSL_CTX_set_tlsext_ticket_keys(context, keys, sizeof keys);
    }
    serve_each(listener, context, answer);
}
#endif
