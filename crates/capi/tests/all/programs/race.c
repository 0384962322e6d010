/* One thread makes contexts with data of its own while others make connections on another context,
 * as servers do that exchange certificates while they run. */
#include <openssl/ssl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

enum { ITEMS = 64, CONTEXTS = 5000 };

static SSL_CTX *base;
static atomic_int stopped;
static int indices[ITEMS];

static void told(const SSL *connection, int where, int result)
{
    (void)connection, (void)where, (void)result;
}

static void *connects(void *unused)
{
    while (!stopped)
        SSL_free(SSL_new(base));
    return unused;
}

static int is_as_it_was_made(SSL_CTX *context)
{
    SSL_CTX_set_info_callback(context, told);
    for (long at = 0; at < ITEMS; at++)
        SSL_CTX_set_ex_data(context, indices[at], (void *)(at + 1));
    for (long at = 0; at < ITEMS; at++)
        if (SSL_CTX_get_ex_data(context, indices[at]) != (void *)(at + 1))
            return 0;
    return SSL_CTX_get_info_callback(context) == told;
}

int main(void)
{
    pthread_t threads[2];
    int wrong = 0;
    OPENSSL_init_ssl(OPENSSL_INIT_LOAD_CONFIG, NULL);
    for (int at = 0; at < ITEMS; at++)
        indices[at] = SSL_CTX_get_ex_new_index(0, NULL, NULL, NULL, NULL);
    base = SSL_CTX_new(TLS_server_method());
    for (int at = 0; at < 2; at++)
        pthread_create(&threads[at], NULL, connects, NULL);
    for (int made = 0; made < CONTEXTS; made++) {
        SSL_CTX *context = SSL_CTX_new(TLS_method());
        wrong += !is_as_it_was_made(context);
        SSL_CTX_free(context);
    }
    stopped = 1;
    for (int at = 0; at < 2; at++)
        pthread_join(threads[at], NULL);
    if (wrong)
        fprintf(stderr, "%d of %d contexts are not as they were made\n", wrong, CONTEXTS);
    return wrong != 0;
}
