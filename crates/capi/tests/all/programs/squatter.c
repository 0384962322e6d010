/* A TLS server that stores pointers of its own under indices of extra data that it never asked for, as FreeRADIUS does:
 *
 *   squatter PORT CERTIFICATE-AND-KEY INDICES
 *
 * It stores them under 1 to INDICES in its context, and in each connection: every other one before the handshake, and
 * after it in the rest. Its answer says how many are still there, and how many of somebody else were there before. */

#include <stdlib.h>
#include <unistd.h>

#include <openssl/ssl.h>

#include "listener.h"

static char own[64];
static int indices;

static int store(SSL *connection)
{
    int found = 0;
    for (int index = 1; index <= indices; index++) {
        found += SSL_get_ex_data(connection, index) != NULL;
        SSL_set_ex_data(connection, index, &own[index]);
    }
    return found;
}

static int count(SSL_CTX *context, SSL *connection)
{
    int kept = 0;
    for (int index = 1; index <= indices; index++) {
        kept += SSL_get_ex_data(connection, index) == &own[index];
        kept += SSL_CTX_get_ex_data(context, index) == &own[index];
    }
    return kept;
}

static void answer(SSL_CTX *context, SSL *connection, int before)
{
    int found = before ? store(connection) : 0;
    if (!has_request(connection))
        return;
    if (!before)
        found = store(connection);
    reply(connection, "kept %d, found %d\n", count(context, connection), found);
}

int main(int argc, char **words)
{
    if (argc != 4)
        return 1;
    indices = atoi(words[3]);
    SSL_CTX *context = SSL_CTX_new(TLS_server_method());
    for (int index = 1; index <= indices; index++)
        SSL_CTX_set_ex_data(context, index, &own[index]);
    int listener = listen_on(words[1]);
    if (listener < 0
        || SSL_CTX_use_certificate_chain_file(context, words[2]) != 1
        || SSL_CTX_use_PrivateKey_file(context, words[2], SSL_FILETYPE_PEM) != 1)
        return 1;
    for (int before = 0;; before = !before) {
        int stream = accept(listener, NULL, NULL);
        SSL *connection = SSL_new(context);
        SSL_set_fd(connection, stream);
        answer(context, connection, before);
        SSL_free(connection);
        close(stream);
    }
}
