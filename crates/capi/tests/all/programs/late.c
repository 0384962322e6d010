/* With -DLIBRARY a library that makes a context as it is loaded, and calls libssl for the second time as the program ends.
 * Without, a program that needs the library, and does nothing. */

#ifdef LIBRARY

#include <stdio.h>

#include <openssl/ssl.h>

static SSL_CTX *context;

__attribute__((constructor)) static void make(void)
{
    fputs("made\n", stderr);
    context = SSL_CTX_new(TLS_client_method());
}

__attribute__((destructor)) static void leave(void)
{
    SSL_CTX_set_cert_cb(context, NULL, NULL);
    SSL_CTX_free(context);
    fputs("left\n", stderr);
}

#else

int main(void)
{
    return 0;
}

#endif
