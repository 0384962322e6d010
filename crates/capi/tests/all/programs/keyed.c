/* A TLS server that authenticates clients by pre-shared keys, without a certificate of its own, or beside one:
 *
 *   keyed PORT CERTIFICATE-AND-KEY IDENTITY:KEY [LATE]
 *
 * It has no certificate if CERTIFICATE-AND-KEY is -, and no key if IDENTITY:KEY is -. With LATE it finds its certificate
 * in its certificate callback, as nginx does where the file's name has a variable. It answers whoever it lets in. */

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <openssl/ssl.h>

#include "listener.h"

static const char *pair, *identity, *key;

static unsigned find(SSL *connection, const char *name, unsigned char *into, unsigned room)
{
    (void)connection;
    if (strcmp(name, identity) != 0 || strlen(key) > room)
        return 0;
    memcpy(into, key, strlen(key));
    return (unsigned)strlen(key);
}

static int certify(SSL *connection, void *argument)
{
    (void)argument;
    return SSL_use_certificate_file(connection, pair, SSL_FILETYPE_PEM) == 1
        && SSL_use_PrivateKey_file(connection, pair, SSL_FILETYPE_PEM) == 1;
}

static void answer(SSL *connection)
{
    if (!has_request(connection))
        return;
    reply(connection, "in\n");
}

int main(int count, char **words)
{
    if (count < 4)
        return 1;
    SSL_CTX *context = SSL_CTX_new(TLS_server_method());
    int listener = listen_on(words[1]);
    pair = words[2];
    if (listener < 0 || SSL_CTX_set_session_id_context(context, (const unsigned char *)"keyed", 5) != 1)
        return 1;
    if (count == 5)
        SSL_CTX_set_cert_cb(context, certify, NULL);
    else if (strcmp(pair, "-") != 0
             && (SSL_CTX_use_certificate_chain_file(context, pair) != 1
                 || SSL_CTX_use_PrivateKey_file(context, pair, SSL_FILETYPE_PEM) != 1))
        return 1;
    if (strcmp(words[3], "-") != 0) {
        identity = strtok(words[3], ":");
        key = strtok(NULL, ":");
        SSL_CTX_set_psk_server_callback(context, find);
    }
    serve_each(listener, context, answer);
}
