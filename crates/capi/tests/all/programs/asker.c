/* A TLS server that asks for client certificates, and judges them by a callback of its own:
 *
 *   asker PORT CERTIFICATE-AND-KEY AUTHORITY ID-CONTEXT MODES VERDICT
 *
 * Each connection gets the verify mode of the next digit of MODES, which begin anew at their end. The callback accepts
 * every certificate, or none: VERDICT is 1 or 0. The answer is the client, somebody or nobody. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <openssl/ssl.h>

#include "listener.h"

static int verdict;

static int judge(int accepted, X509_STORE_CTX *chain)
{
    (void)accepted, (void)chain;
    return verdict;
}

static void answer(SSL *connection)
{
    char request[4096], text[256];
    if (SSL_accept(connection) != 1 || SSL_read(connection, request, sizeof request) <= 0)
        return;
    const char *who = SSL_get0_peer_certificate(connection) != NULL ? "somebody" : "nobody";
    snprintf(text, sizeof text, "HTTP/1.0 200 OK\r\n\r\n%s\n", who);
    SSL_write(connection, text, (int)strlen(text));
    SSL_shutdown(connection);
}

int main(int count, char **words)
{
    if (count != 7)
        return 1;
    SSL_CTX *context = SSL_CTX_new(TLS_server_method());
    const char *name = words[4], *modes = words[5];
    verdict = atoi(words[6]);
    int listener = listen_on(words[1]);
    if (listener < 0
        || SSL_CTX_use_certificate_chain_file(context, words[2]) != 1
        || SSL_CTX_use_PrivateKey_file(context, words[2], SSL_FILETYPE_PEM) != 1
        || SSL_CTX_load_verify_locations(context, words[3], NULL) != 1
        || SSL_CTX_set_session_id_context(context, (const unsigned char *)name, (unsigned)strlen(name)) != 1)
        return 1;
    SSL_CTX_set_verify(context, modes[0] - '0', judge);
    for (size_t at = 0;;) {
        int stream = accept(listener, NULL, NULL);
        SSL *connection = SSL_new(context);
        SSL_set_verify(connection, modes[at] - '0', judge);
        SSL_set_fd(connection, stream);
        answer(connection);
        /* Who says nothing only sees whether the server listens. */
        if (BIO_number_read(SSL_get_rbio(connection)) > 0)
            at = modes[at + 1] == '\0' ? 0 : at + 1;
        SSL_free(connection);
        close(stream);
    }
}
