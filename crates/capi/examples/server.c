/* A TLS server that keeps its sessions in a store that processes share.
 *
 *   cc -o server server.c -lrejoin -lssl -lcrypto
 *   ./server PORT CERTIFICATE KEY STORE CONNECTIONS
 *
 * It says to every client to come back in a minute, and in the end what the store counted. */

#include <arpa/inet.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <openssl/err.h>

#include "rejoin.h"

#define COMES_BACK_MS 60000

/* The server goes on without Rejoin after any failure. */
static void complain(const char *what)
{
    char line[512];
    rejoin_last_error(line, sizeof line);
    fprintf(stderr, "%s: %s\n", what, line);
}

static void fail(const char *what)
{
    perror(what);
    exit(1);
}

static SSL_CTX *new_context(const char *certificate, const char *key)
{
    SSL_CTX *context = SSL_CTX_new(TLS_server_method());
    if (context == NULL
        || SSL_CTX_use_certificate_chain_file(context, certificate) != 1
        || SSL_CTX_use_PrivateKey_file(context, key, SSL_FILETYPE_PEM) != 1
        || SSL_CTX_set_session_id_context(context, (const unsigned char *)"example", 7) != 1) {
        ERR_print_errors_fp(stderr);
        exit(1);
    }
    return context;
}

static int listen_on(uint16_t port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    int reuse = 1;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (listener < 0
        || setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &reuse, sizeof reuse) != 0
        || bind(listener, (struct sockaddr *)&address, sizeof address) != 0
        || listen(listener, 64) != 0)
        fail("listen");
    return listener;
}

static void serve(SSL *connection)
{
    static const char answer[] = "HTTP/1.0 200 OK\r\n\r\nhello\n";
    char request[4096];
    if (SSL_accept(connection) != 1 || SSL_read(connection, request, sizeof request) <= 0)
        return;
    if (rejoin_hint(connection, COMES_BACK_MS) != REJOIN_OK)
        complain("hint");
    SSL_write(connection, answer, sizeof answer - 1);
    SSL_shutdown(connection);
}

static void report(const rejoin_store *store)
{
    rejoin_counters counters = {.struct_size = sizeof counters};
    if (rejoin_read_counters(store, &counters) != REJOIN_OK)
        complain("counters");
    else
        printf("stored %" PRIu64 ", hits %" PRIu64 ", misses %" PRIu64 "\n", counters.stored,
               counters.hits, counters.misses);
}

int main(int count, char **arguments)
{
    if (count != 6) {
        fprintf(stderr, "usage: %s PORT CERTIFICATE KEY STORE CONNECTIONS\n", arguments[0]);
        return 2;
    }
    SSL_CTX *context = new_context(arguments[2], arguments[3]);
    rejoin_settings settings = {
        .struct_size = sizeof settings, .name = arguments[4], .capacity_bytes = 1 << 20};
    rejoin_store *store;
    if (rejoin_open(&settings, &store) != REJOIN_OK)
        complain("open");
    else if (rejoin_attach(store, context, REJOIN_STATEFUL | REJOIN_WAIT_FOR_HINTS) != REJOIN_OK)
        complain("attach");

    signal(SIGPIPE, SIG_IGN);
    int listener = listen_on((uint16_t)atoi(arguments[1]));
    for (int left = atoi(arguments[5]); left > 0; left--) {
        int stream = accept(listener, NULL, NULL);
        if (stream < 0)
            fail("accept");
        SSL *connection = SSL_new(context);
        SSL_set_fd(connection, stream);
        serve(connection);
        SSL_free(connection);
        close(stream);
    }
    report(store);
    SSL_CTX_free(context);
    rejoin_close(store);
    close(listener);
    return 0;
}
