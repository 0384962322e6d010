/* With -DOTHER a library that is preloaded, and interposes functions of libssl and GnuTLS, each of which says so and calls
 * the next one. With -DCALLS a library that makes a connection, which goes nowhere. Without, a program that does the
 * same; with -DNEEDS by that library. */
#ifdef OTHER
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Calls the next function of this name. */
static void *next(const char *name, void *first, long second)
{
    static int depth;
    void *(*found)(void *, long), *done;
    *(void **)&found = dlsym(RTLD_NEXT, name);
    if (write(2, name, strlen(name)) < 0 || write(2, "\n", 1) < 0 || found == NULL || ++depth > 9)
        _exit(9);
    done = found(first, second);
    depth--;
    return done;
}

void *SSL_new(void *context);
int SSL_connect(void *ssl);
int gnutls_init(void *session, unsigned flags);

void *SSL_new(void *context)
{
    return next("SSL_new", context, 0);
}

int SSL_connect(void *ssl)
{
    return (int)(long)next("SSL_connect", ssl, 0);
}

int gnutls_init(void *session, unsigned flags)
{
    return (int)(long)next("gnutls_init", session, flags);
}
#else
int connects(void);
#ifndef NEEDS
#include <stddef.h>

#include <openssl/ssl.h>

int gnutls_init(void **session, unsigned flags);

int connects(void)
{
    SSL_CTX *context = SSL_CTX_new(TLS_method());
    SSL *connection = SSL_new(context);
    void *session = NULL;
    int works = SSL_get_SSL_CTX(connection) == context && SSL_connect(connection) != 1;
    SSL_free(connection);
    SSL_CTX_free(context);
    /* It is the client's end. */
    return works && gnutls_init(&session, 2) == 0 && session != NULL;
}
#endif
#ifndef CALLS
int main(void)
{
    return connects() ? 0 : 1;
}
#endif
#endif
