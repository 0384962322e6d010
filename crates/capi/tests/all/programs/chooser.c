/* A TLS server that demands client certificates of whoever asks for the host "localhost":
 *
 *   chooser PORT CERTIFICATE-AND-KEY AUTHORITY
 *
 * It does so in its ClientHello callback, before OpenSSL looks up sessions, and switches to the host's own context in its
 * certificate callback, which OpenSSL calls in full handshakes alone, as Apache Traffic Server does. The answer is the client,
 * somebody or nobody. */

#include <string.h>

#include <openssl/ssl.h>

#include "listener.h"

static SSL_CTX *hosts_own;

/* The extension is a list of one name. */
static int is_host_asked(SSL *connection)
{
    const unsigned char *text;
    size_t length;
    return SSL_client_hello_get0_ext(connection, TLSEXT_TYPE_server_name, &text, &length) == 1 && length == 5 + 9
        && memcmp(text + 5, "localhost", 9) == 0;
}

static int choose(SSL *connection, int *alert, void *argument)
{
    (void)alert, (void)argument;
    SSL_set_verify(connection, is_host_asked(connection) ? SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT : 0, NULL);
    return SSL_CLIENT_HELLO_SUCCESS;
}

static int move(SSL *connection, void *argument)
{
    (void)argument;
    if (SSL_get_servername(connection, TLSEXT_NAMETYPE_host_name) != NULL)
        SSL_set_SSL_CTX(connection, hosts_own);
    return 1;
}

static void answer(SSL *connection)
{
    if (!has_request(connection))
        return;
    const char *who = SSL_get0_peer_certificate(connection) != NULL ? "somebody" : "nobody";
    reply(connection, "%s\n", who);
}

static SSL_CTX *made(char **words)
{
    SSL_CTX *context = SSL_CTX_new(TLS_server_method());
    int is_made = SSL_CTX_use_certificate_chain_file(context, words[2]) == 1
        && SSL_CTX_use_PrivateKey_file(context, words[2], SSL_FILETYPE_PEM) == 1
        && SSL_CTX_set_session_id_context(context, (const unsigned char *)"chooser", 7) == 1
        && SSL_CTX_load_verify_locations(context, words[3], NULL) == 1;
    SSL_CTX_set_verify(context, SSL_VERIFY_PEER, NULL);
    return is_made ? context : NULL;
}

int main(int count, char **words)
{
    int listener = count < 4 ? -1 : listen_on(words[1]);
    SSL_CTX *context = listener < 0 ? NULL : made(words);
    if (context == NULL || (hosts_own = made(words)) == NULL)
        return 1;
    SSL_CTX_set_client_hello_cb(context, choose, NULL);
    SSL_CTX_set_cert_cb(context, move, NULL);
    serve_each(listener, context, answer);
}
