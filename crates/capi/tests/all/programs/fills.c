/* A TLS server that puts data of its own into tickets, and serves no client that resumes without it, as ProFTPD does on its
 * data connections:
 *
 *   fills PORT CERTIFICATE-AND-KEY [NO-TICKETS] */

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <openssl/ssl.h>

#include "listener.h"

static const char mine[] = "of this program";

static int fill(SSL *connection, void *argument)
{
    (void)argument;
    return SSL_SESSION_set1_ticket_appdata(SSL_get_session(connection), mine, sizeof mine);
}

static int has_mine(SSL_SESSION *session)
{
    void *data = NULL;
    size_t length = 0;
    return SSL_SESSION_get0_ticket_appdata(session, &data, &length) == 1 && length == sizeof mine
        && memcmp(data, mine, length) == 0;
}

static SSL_TICKET_RETURN look(SSL *connection, SSL_SESSION *session, const unsigned char *name, size_t length,
                              SSL_TICKET_STATUS status, void *argument)
{
    (void)name, (void)length, (void)argument;
    /* Over TLS 1.2 a client would take the session for one that resumes no more. */
    if ((status == SSL_TICKET_SUCCESS || status == SSL_TICKET_SUCCESS_RENEW) && has_mine(session))
        return SSL_version(connection) == TLS1_3_VERSION ? SSL_TICKET_RETURN_USE_RENEW : SSL_TICKET_RETURN_USE;
    return SSL_TICKET_RETURN_IGNORE_RENEW;
}

static int is_filled;

static void answer(SSL *connection)
{
    if (!has_request(connection))
        return;
    if (is_filled && SSL_session_reused(connection) && !has_mine(SSL_get_session(connection)))
        return;
    reply(connection, "in\n");
}

int main(int count, char **words)
{
    if (count < 3)
        return 1;
    SSL_CTX *context = SSL_CTX_new(TLS_server_method());
    int listener = listen_on(words[1]);
    if (listener < 0 || SSL_CTX_set_session_id_context(context, (const unsigned char *)"fills", 5) != 1
        || SSL_CTX_use_certificate_chain_file(context, words[2]) != 1
        || SSL_CTX_use_PrivateKey_file(context, words[2], SSL_FILETYPE_PEM) != 1
        || SSL_CTX_set_session_ticket_cb(context, fill, look, NULL) != 1)
        return 1;
    if (count == 4)
        SSL_CTX_set_options(context, SSL_OP_NO_TICKET);
    is_filled = count < 4;
    serve_each(listener, context, answer);
}
