/* A TLS server that uses one SSL for all of its connections, and asks for certificates under one name:
 *
 *   again PORT CERTIFICATE-AND-KEY AUTHORITY */

#include <string.h>
#include <unistd.h>

#include <openssl/ssl.h>

#include "listener.h"

static int named(SSL *connection, int *alert, void *argument)
{
    const char *name = SSL_get_servername(connection, TLSEXT_NAMETYPE_host_name);
    int asks = name != NULL && strcmp(name, "secure.example") == 0;
    (void)alert, (void)argument;
    SSL_set_verify(connection, asks ? SSL_VERIFY_PEER : SSL_VERIFY_NONE, NULL);
    return SSL_TLSEXT_ERR_OK;
}

static void answer(SSL *connection)
{
    if (!has_request(connection))
        return;
    const char *who = SSL_get0_peer_certificate(connection) != NULL ? "somebody" : "nobody";
    const char *name = SSL_get_servername(connection, TLSEXT_NAMETYPE_host_name);
    reply(connection, "%s %s\n", name, who);
}

int main(int count, char **words)
{
    if (count != 4)
        return 1;
    SSL_CTX *context = SSL_CTX_new(TLS_server_method());
    SSL_CTX_set_tlsext_servername_callback(context, named);
    int listener = listen_on(words[1]);
    if (listener < 0
        || SSL_CTX_use_certificate_chain_file(context, words[2]) != 1
        || SSL_CTX_use_PrivateKey_file(context, words[2], SSL_FILETYPE_PEM) != 1
        || SSL_CTX_load_verify_locations(context, words[3], NULL) != 1
        || SSL_CTX_set_session_id_context(context, (const unsigned char *)"again", 5) != 1)
        return 1;
    SSL *connection = SSL_new(context);
    for (int left = 200; left > 0; left--) {
        int stream = accept(listener, NULL, NULL);
        SSL_set_fd(connection, stream);
        answer(connection);
        close(stream);
        if (SSL_clear(connection) != 1)
            return 1;
    }
    return 0;
}
