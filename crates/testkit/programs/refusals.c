/* A client that refuses servers in unusual ways: `refusals HOW PORT AUTHORITY`. Prints what it sees. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static int rounds, verdict;
static sigjmp_buf place;

static SSL *of(X509_STORE_CTX *store)
{
    return X509_STORE_CTX_get_ex_data(store, SSL_get_ex_data_X509_STORE_CTX_idx());
}

/* Is undecided twice. */
static int later(X509_STORE_CTX *store, void *with)
{
    rounds++;
    if (rounds < 3) {
        SSL_set_retry_verify(of(store));
        return 1;
    }
    X509_STORE_CTX_set_error(store, verdict ? X509_V_OK : X509_V_ERR_CERT_REJECTED);
    return verdict;
}

/* Prints what it sees of the connection. */
static int views(int is_ok, X509_STORE_CTX *store)
{
    SSL *ssl = of(store);
    printf("%s, %d in the chain, certificate: %d, reused: %d\n", SSL_get_version(ssl),
           sk_X509_num(SSL_get_peer_cert_chain(ssl)), SSL_get0_peer_certificate(ssl) != NULL,
           SSL_session_reused(ssl));
    return verdict ? is_ok : 0;
}

static SSL_CTX *made_as(const char *how)
{
    OSSL_LIB_CTX *library = strstr(how, "library") ? OSSL_LIB_CTX_new() : NULL;
    const char *properties = strstr(how, "properties") ? "?fips=yes" : NULL;
    if (strncmp(how, "new", 3) == 0)
        return SSL_CTX_new_ex(library, properties, TLS_client_method());
    return SSL_CTX_new(TLS_client_method());
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

static SSL *made(SSL_CTX *context, int plain)
{
    SSL *ssl = SSL_new(context);
    SSL_set_tlsext_host_name(ssl, "localhost");
    SSL_set1_host(ssl, "localhost");
    SSL_set_fd(ssl, plain);
    return ssl;
}

/* Begins a handshake that does not wait. */
static int begun(SSL *ssl)
{
    int plain = SSL_get_fd(ssl);
    fcntl(plain, F_SETFL, O_NONBLOCK);
    SSL_connect(ssl);
    poll(NULL, 0, 500);
    fcntl(plain, F_SETFL, 0);
    ERR_clear_error();
    return plain;
}

/* Moves the socket in mid-handshake. Its old number is another file's then, which is read. */
static void moved(SSL *ssl)
{
    char byte;
    int plain = begun(ssl), other = fcntl(plain, F_DUPFD_CLOEXEC, 100);
    close(plain);
    if (open("/dev/zero", O_RDONLY) != plain || read(plain, &byte, 1) != 1)
        exit(2);
    SSL_set_fd(ssl, other);
}

/* Goes on with a handshake deeper in the stack. */
static int __attribute__((noinline)) deeper(SSL *ssl, int by)
{
    volatile char room[4000];
    int done;
    room[0] = (char)by;
    done = by > 0 ? deeper(ssl, by - 1) : SSL_connect(ssl);
    return room[0] == (char)by ? done : -2;
}

static void jump(int number)
{
    siglongjmp(place, number);
}

/* Leaves a handshake with a silent server at the end of its time. */
static void left(SSL *ssl)
{
    signal(SIGALRM, jump);
    if (sigsetjmp(place, 1) == 0) {
        alarm(1);
        deeper(ssl, 1);
        exit(2);
    }
    alarm(0);
}

/* A server that says nothing. */
static int silent(void)
{
    struct sockaddr_in own = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof own;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(listener, (struct sockaddr *)&own, sizeof own) != 0 || listen(listener, 9) != 0)
        exit(2);
    getsockname(listener, (struct sockaddr *)&own, &length);
    return ntohs(own.sin_port);
}

int main(int count, char **words)
{
    const char *how = words[1], *request = "GET /page HTTP/1.0\r\n\r\n";
    SSL_CTX *context = made_as(how);
    int port = atoi(words[2]), is_left, done, error, plain;
    char answer[4096];
    SSL *ssl;

    signal(SIGPIPE, SIG_IGN);
    setbuf(stdout, NULL);
    verdict = strstr(how, "refuse") == NULL;
    is_left = strcmp(how, "left") == 0;
    SSL_CTX_set_verify(context, SSL_VERIFY_PEER, strncmp(how, "view", 4) == 0 ? views : NULL);
    if (SSL_CTX_load_verify_locations(context, words[3], NULL) != 1)
        return 2;
    if (strncmp(how, "later", 5) == 0)
        SSL_CTX_set_cert_verify_callback(context, later, NULL);
    if (strncmp(how, "SUITEB", 6) == 0 && SSL_CTX_set_cipher_list(context, how) != 1)
        return 2;
    if (is_left) {
        ssl = made(context, connected(silent()));
        left(ssl);
        plain = SSL_get_fd(ssl);
        SSL_free(ssl);
        close(plain);
        ssl = made(context, connected(port));
        begun(ssl);
    } else {
        ssl = made(context, connected(port));
    }
    if (strcmp(how, "moved") == 0)
        moved(ssl);
    for (;;) {
        done = is_left ? deeper(ssl, 5) : SSL_connect(ssl);
        error = SSL_get_error(ssl, done);
        /* A handshake that was begun may have failed already, with an error that is cleared. */
        printf("%d: %d, %s\n", done, is_left ? 0 : error,
               X509_verify_cert_error_string(SSL_get_verify_result(ssl)));
        if (error != SSL_ERROR_WANT_RETRY_VERIFY)
            break;
        /* Others than SSL_connect wait, too. */
        done = SSL_read(ssl, answer, 5);
        printf("read %d: %d\n", done, SSL_get_error(ssl, done));
        if (SSL_get_error(ssl, done) != SSL_ERROR_WANT_RETRY_VERIFY)
            break;
    }
    /* libssl does not know that a handshake was left, and writes after a refusal. */
    if (is_left && done != 1)
        return 1;
    printf("certificate: %d, reused: %d\n", SSL_get0_peer_certificate(ssl) != NULL,
           SSL_session_reused(ssl));
    ERR_clear_error();
    done = SSL_write(ssl, request, (int)strlen(request));
    printf("written: %d\n", done > 0);
    done = done > 0 ? SSL_read(ssl, answer, sizeof answer) : 0;
    printf("%.12s\n", done > 12 ? answer : "no answer");
    SSL_free(ssl);
    return done > 12 ? 0 : 1;
}
