/* A TLS server without tickets that welcomes nobody, and marks each session as it is made: it takes the welcome away that a new
 * session has, as stunnel does where it redirects clients that it has not verified:
 *
 *   marks PORT CERTIFICATE-AND-KEY */

#include <openssl/ssl.h>

#include "listener.h"

static int marks;
static char welcome;

static void begin(void *session, void *value, CRYPTO_EX_DATA *data, int index, long number, void *argument)
{
    (void)session, (void)value, (void)number, (void)argument;
    CRYPTO_set_ex_data(data, index, &welcome);
}

static int mark(SSL *connection, void *argument)
{
    (void)argument;
    return SSL_SESSION_set_ex_data(SSL_get_session(connection), marks, NULL);
}

static void answer(SSL *connection)
{
    if (!has_request(connection))
        return;
    int is_welcome = SSL_SESSION_get_ex_data(SSL_get_session(connection), marks) != NULL;
    reply(connection, is_welcome ? "welcome\n" : "not welcome\n");
}

int main(int count, char **words)
{
    if (count < 3)
        return 1;
    marks = SSL_SESSION_get_ex_new_index(0, NULL, begin, NULL, NULL);
    SSL_CTX *context = SSL_CTX_new(TLS_server_method());
    int listener = listen_on(words[1]);
    if (listener < 0 || SSL_CTX_set_session_id_context(context, (const unsigned char *)"marks", 5) != 1
        || SSL_CTX_use_certificate_chain_file(context, words[2]) != 1
        || SSL_CTX_use_PrivateKey_file(context, words[2], SSL_FILETYPE_PEM) != 1)
        return 1;
    SSL_CTX_set_options(context, SSL_OP_NO_TICKET);
    SSL_CTX_set_cert_cb(context, mark, NULL);
    serve_each(listener, context, answer);
}
