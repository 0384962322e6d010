/* A client with a verification of its own: `verify HOST PORT AUTHORITY HOW`. Prints what it sees. */
#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static int calls, overrides, pretends, refuses;

/* Of every certificate. */
static int one(int is_ok, X509_STORE_CTX *store)
{
    SSL *ssl = X509_STORE_CTX_get_ex_data(store, SSL_get_ex_data_X509_STORE_CTX_idx());
    int error = X509_STORE_CTX_get_error(store);
    calls++;
    printf("depth %d, %d, %s, of %s\n", X509_STORE_CTX_get_error_depth(store), is_ok,
           X509_verify_cert_error_string(error), SSL_get_servername(ssl, TLSEXT_NAMETYPE_host_name));
    if (refuses) {
        X509_STORE_CTX_set_error(store, X509_V_ERR_APPLICATION_VERIFICATION);
        return 0;
    }
    /* And says that nothing was wrong. */
    if (pretends)
        X509_STORE_CTX_set_error(store, X509_V_OK);
    return overrides ? 1 : is_ok;
}

/* Of all at once. */
static int all(X509_STORE_CTX *store, void *with)
{
    int found = X509_verify_cert(store);
    printf("all: %d with %s\n", found, (const char *)with);
    return found;
}

/* In place of the check of all signatures. */
static int none(X509_STORE_CTX *store)
{
    (void)store;
    return 1;
}

static int connected(int port)
{
    struct sockaddr_in server = {.sin_family = AF_INET, .sin_port = htons((unsigned short)port)};
    int plain = socket(AF_INET, SOCK_STREAM, 0);
    inet_pton(AF_INET, "127.0.0.1", &server.sin_addr);
    if (connect(plain, (struct sockaddr *)&server, sizeof server) != 0)
        exit(2);
    return plain;
}

/* Begins a handshake that does not wait, and has the first bytes finish it, both by the BIO if there is one. */
static int written(SSL *ssl, BIO *bio, const char *request)
{
    struct pollfd plain = {.fd = SSL_get_fd(ssl)};
    int status = fcntl(plain.fd, F_GETFL), length = (int)strlen(request), done;

    fcntl(plain.fd, F_SETFL, status | O_NONBLOCK);
    done = bio ? (int)BIO_do_handshake(bio) : SSL_connect(ssl);
    if (done == 1)
        done = bio ? BIO_write(bio, request, length) : SSL_write(ssl, request, length);
    while (done <= 0 && ERR_peek_error() == 0) {
        plain.events = SSL_get_error(ssl, done) == SSL_ERROR_WANT_WRITE ? POLLOUT : POLLIN;
        if (poll(&plain, 1, 10000) != 1)
            break;
        done = bio ? BIO_write(bio, request, length) : SSL_write(ssl, request, length);
    }
    fcntl(plain.fd, F_SETFL, status);
    return done > 0 ? 1 : done;
}

int main(int count, char **words)
{
    const char *how = count > 4 ? words[4] : "callback";
    SSL_CTX *context = SSL_CTX_new(TLS_client_method());
    char request[256], answer[4096], name[256];
    SSL *ssl;
    X509 *own;
    STACK_OF(X509) *chain;
    BIO *bio = NULL;
    int read, done, left, in_store, is_written;

    is_written = strcmp(how, "implicit") == 0 || strcmp(how, "bio") == 0;
    in_store = strncmp(how, "store", 5) == 0;
    pretends = strcmp(how, "pretend") == 0 || strcmp(how, "store-pretend") == 0;
    overrides = pretends || strcmp(how, "override") == 0;
    refuses = strcmp(how, "refuse") == 0;
    if (!overrides && SSL_CTX_load_verify_locations(context, words[3], NULL) != 1)
        return 2;
    SSL_CTX_set_verify(context, SSL_VERIFY_PEER, in_store || strcmp(how, "all") == 0 ? NULL : one);
    if (in_store)
        X509_STORE_set_verify_cb(SSL_CTX_get_cert_store(context), one);
    if (strcmp(how, "store-unsigned") == 0)
        X509_STORE_set_verify(SSL_CTX_get_cert_store(context), none);
    if (strcmp(how, "all") == 0)
        SSL_CTX_set_cert_verify_callback(context, all, "what it came with");
    ssl = SSL_new(context);
    SSL_set_tlsext_host_name(ssl, words[1]);
    SSL_set1_host(ssl, words[1]);
    SSL_set_fd(ssl, connected(atoi(words[2])));
    snprintf(request, sizeof request, "GET /page HTTP/1.0\r\nHost: %s\r\n\r\n", words[1]);
    SSL_set_connect_state(ssl);
    if (strcmp(how, "bio") == 0) {
        bio = BIO_new(BIO_f_ssl());
        BIO_set_ssl(bio, ssl, BIO_NOCLOSE);
    }
    errno = 0;
    done = is_written ? written(ssl, bio, request) : SSL_connect(ssl);
    left = errno;
    if (done != 1) {
        unsigned long error = ERR_get_error();
        printf("%d: %d, %s, %s\n", done, SSL_get_error(ssl, done), ERR_reason_error_string(error),
               X509_verify_cert_error_string(SSL_get_verify_result(ssl)));
        if (!is_written)
            printf("left: %s\n", strerror(left));
        printf("state: %s, %s\n", SSL_state_string(ssl), SSL_state_string_long(ssl));
        /* A refusal stays one, and is no signal. */
        ERR_clear_error();
        printf("again: %d, %d, %d\n", SSL_connect(ssl) == 1, SSL_write(ssl, request, 5) > 0,
               SSL_read(ssl, answer, 5) > 0);
        SSL_shutdown(ssl);
        SSL_free(ssl);
        return 1;
    }
    own = SSL_get1_peer_certificate(ssl);
    chain = SSL_get_peer_cert_chain(ssl);
    X509_NAME_oneline(X509_get_subject_name(own), name, sizeof name);
    printf("%s %s %s, %d in the chain, verified %d, %s\n", SSL_get_version(ssl),
           SSL_CIPHER_get_name(SSL_get_current_cipher(ssl)), name, sk_X509_num(chain),
           sk_X509_num(SSL_get0_verified_chain(ssl)),
           X509_verify_cert_error_string(SSL_get_verify_result(ssl)));
    printf("secure renegotiation %ld, extended master secret %ld\n",
           SSL_get_secure_renegotiation_support(ssl), SSL_get_extms_support(ssl));
    X509_free(own);
    if (!is_written)
        SSL_write(ssl, request, (int)strlen(request));
    do
        read = SSL_read(ssl, answer, sizeof answer);
    while (read <= 0 && SSL_get_error(ssl, read) == SSL_ERROR_WANT_READ);
    printf("%.12s\n", read > 12 ? answer : "no answer");
    while (read > 0)
        read = SSL_read(ssl, answer, sizeof answer);
    SSL_shutdown(ssl);
    if (strcmp(how, "session") == 0) {
        FILE *file = fopen(words[5], "w");
        PEM_write_SSL_SESSION(file, SSL_get_session(ssl));
        fclose(file);
    }
    SSL_free(ssl);
    SSL_CTX_free(context);
    printf("%s\n", calls > 0 ? "asked" : "not asked");
    return 0;
}
