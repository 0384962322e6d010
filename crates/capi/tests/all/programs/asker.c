/* A TLS server that asks for client certificates, and changes its demands on the way:
 *
 *   asker PORT CERTIFICATE-AND-KEY WORDS
 *
 * It obeys WORDS at its start, and a further line of words from standard input before the next connection:
 *
 *   tickets=0         no context that is made from now on issues stateless tickets
 *   new               another context in the place of the one before, which is freed
 *   again             the same, at the address of the one before
 *   host              a second context, for connections to secure.example; the words that follow mean it
 *   context=TEXT      its session-id context; _ stands for a space
 *   ca=FILE           one more authority in its store
 *   folder=FOLDER     its store finds authorities and revocation lists there when they are first needed
 *   crl=FILE          one more revocation list in its store, all of which count from now on
 *   check             the revocation lists in its store count from now on
 *   store=FILE        the authorities for clients, in a store that is not the context's own
 *   another=FILE      the authorities, in a store that takes the place of the context's own
 *   verify=MODE       0, 1 (a client may have no certificate) or 3
 *   judge=VERDICT     its callback accepts every certificate (1), none (0), or what OpenSSL accepts (2); - removes it
 *   depth=N purpose=N what X509_VERIFY_PARAM has for that
 *   level=N           the security level that clients' keys need
 *   each=MODES        each connection gets the next of these verify modes, which begin anew at their end
 *   named=MODES       the same, from the servername callback
 *   ask=MODE          who has shown no certificate is asked after its request, by a renegotiation or RFC 8446's 4.6.2
 *   clock=SECONDS     the clock is ahead by so much
 *   fork              a child serves from now on, in the place of the one before, and obeys the rest of the line
 *   forks             each connection has a child of its own
 *
 * The answer is the client's common name or nobody, before and after it was asked. */

#define _GNU_SOURCE
#include <malloc.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <openssl/ssl.h>

#include "listener.h"

static SSL_CTX *context, *secure, **target = &context;
static const char *pair;
static char each[8], named[8];
static int tickets = 1, verdict, asked;
static size_t turn;
static time_t ahead;
static pid_t child;
static int is_child, forks;

static void fail(const char *what)
{
    fprintf(stderr, "asker: %s\n", what);
    exit(1);
}

/* libcrypto's clock, too. */
time_t time(time_t *into)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    now.tv_sec += ahead;
    if (into != NULL)
        *into = now.tv_sec;
    return now.tv_sec;
}

/* The next object as large as `spare` gets its address. */
static const void *kept;
static void *spare;

static void *allocate(size_t size, const char *file, int line)
{
    (void)file, (void)line;
    size_t room = spare != NULL ? malloc_usable_size(spare) : 0;
    if (room < size || room - size >= 16)
        return malloc(size);
    void *found = spare;
    spare = NULL;
    return found;
}

static void *reallocate(void *old, size_t size, const char *file, int line)
{
    (void)file, (void)line;
    return realloc(old, size);
}

static void release(void *old, const char *file, int line)
{
    (void)file, (void)line;
    if (old != NULL && old == kept)
        spare = old, kept = NULL;
    else
        free(old);
}

static int judge(int accepted, X509_STORE_CTX *chain)
{
    (void)chain;
    return verdict == 2 ? accepted : verdict;
}

static int mode_of(const char *modes)
{
    return modes[turn % strlen(modes)] - '0';
}

static int name_known(SSL *connection, int *alert, void *argument)
{
    (void)alert, (void)argument;
    const char *name = SSL_get_servername(connection, TLSEXT_NAMETYPE_host_name);
    if (secure != NULL && name != NULL && strcmp(name, "secure.example") == 0) {
        SSL_set_SSL_CTX(connection, secure);
        SSL_set_verify(connection, SSL_CTX_get_verify_mode(secure), SSL_CTX_get_verify_callback(secure));
    }
    if (named[0] != '\0')
        SSL_set_verify(connection, mode_of(named), SSL_get_verify_callback(connection));
    return SSL_TLSEXT_ERR_OK;
}

static SSL_CTX *made(void)
{
    SSL_CTX *new = SSL_CTX_new(TLS_server_method());
    if (SSL_CTX_use_certificate_chain_file(new, pair) != 1
        || SSL_CTX_use_PrivateKey_file(new, pair, SSL_FILETYPE_PEM) != 1)
        fail("no certificate");
    SSL_CTX_set_tlsext_servername_callback(new, name_known);
    SSL_CTX_set_timeout(new, 24 * 3600);
    /* As Apache does: otherwise a client that is asked would resume the session that it has. */
    SSL_CTX_set_options(new, SSL_OP_NO_SESSION_RESUMPTION_ON_RENEGOTIATION);
    if (!tickets)
        SSL_CTX_set_options(new, SSL_OP_NO_TICKET);
    return new;
}

static void renew(int at_same_address)
{
    target = &context;
    kept = at_same_address ? context : NULL;
    const void *before = kept;
    SSL_CTX_free(context);
    context = made();
    if (before != NULL && context != before)
        fail("another address");
}

static void fork_one(char **rest)
{
    if (child > 0) {
        kill(child, SIGKILL);
        waitpid(child, NULL, 0);
    }
    child = fork();
    if (child == 0)
        is_child = 1, prctl(PR_SET_PDEATHSIG, SIGKILL);
    else
        *rest = NULL;
}

static int set_parameter(const char *name, const char *value)
{
    X509_STORE *store = SSL_CTX_get_cert_store(*target);
    if (strcmp(name, "ca") == 0)
        return SSL_CTX_load_verify_locations(*target, value, NULL);
    if (strcmp(name, "folder") == 0)
        return SSL_CTX_load_verify_locations(*target, NULL, value);
    if (strcmp(name, "crl") == 0)
        return X509_STORE_load_locations(store, value, NULL) && X509_STORE_set_flags(store, X509_V_FLAG_CRL_CHECK);
    if (strcmp(name, "check") == 0)
        return X509_STORE_set_flags(store, X509_V_FLAG_CRL_CHECK);
    if (strcmp(name, "store") == 0) {
        X509_STORE *other = X509_STORE_new();
        return X509_STORE_load_locations(other, value, NULL) && SSL_CTX_set0_verify_cert_store(*target, other);
    }
    if (strcmp(name, "another") == 0) {
        X509_STORE *another = X509_STORE_new();
        return SSL_CTX_set_cert_store(*target, another), X509_STORE_load_locations(another, value, NULL);
    }
    if (strcmp(name, "purpose") == 0)
        return SSL_CTX_set_purpose(*target, atoi(value));
    if (strcmp(name, "level") == 0)
        return X509_VERIFY_PARAM_set_auth_level(SSL_CTX_get0_param(*target), atoi(value)), 1;
    if (strcmp(name, "depth") == 0)
        return SSL_CTX_set_verify_depth(*target, atoi(value)), 1;
    return 0;
}

static int set_demand(const char *name, char *value)
{
    if (strcmp(name, "verify") == 0)
        SSL_CTX_set_verify(*target, atoi(value), SSL_CTX_get_verify_callback(*target));
    else if (strcmp(name, "judge") == 0)
        SSL_CTX_set_verify(*target, SSL_CTX_get_verify_mode(*target), value[0] == '-' ? NULL : judge),
            verdict = atoi(value);
    else if (strcmp(name, "each") == 0)
        turn = 0, snprintf(each, sizeof each, "%s", value);
    else if (strcmp(name, "named") == 0)
        // Where Rejoin ends a connection, no signal ends the server.
        signal(SIGPIPE, SIG_DFL), turn = 0, snprintf(named, sizeof named, "%s", value);
    else if (strcmp(name, "ask") == 0)
        asked = atoi(value);
    else if (strcmp(name, "clock") == 0)
        ahead = atoi(value);
    else if (strcmp(name, "context") == 0) {
        for (char *space; (space = strchr(value, '_')) != NULL;)
            *space = ' ';
        return SSL_CTX_set_session_id_context(*target, (const unsigned char *)value, (unsigned)strlen(value));
    } else
        return set_parameter(name, value);
    return 1;
}

static void obey(char *words)
{
    char *word;
    while (words != NULL && (word = strsep(&words, " \n")) != NULL) {
        char *value = strchr(word, '=');
        if (value != NULL)
            *value++ = '\0';
        if (word[0] == '\0')
            continue;
        if (strcmp(word, "new") == 0 || strcmp(word, "again") == 0)
            renew(word[0] == 'a');
        else if (strcmp(word, "host") == 0)
            SSL_CTX_free(secure), secure = made(), target = &secure;
        else if (strcmp(word, "fork") == 0)
            fork_one(&words);
        else if (strcmp(word, "forks") == 0)
            forks = 1;
        else if (strcmp(word, "tickets") == 0)
            tickets = atoi(value);
        else if (set_demand(word, value) != 1)
            fail(word);
    }
}

static const char *who(SSL *connection, char *name, int room)
{
    X509 *certificate = SSL_get0_peer_certificate(connection);
    if (certificate == NULL)
        return "nobody";
    X509_NAME_get_text_by_NID(X509_get_subject_name(certificate), NID_commonName, name, room);
    return name;
}

/* Asks a client for its certificate. Returns 1 if it was shown, and accepted. */
static int ask(SSL *connection)
{
    SSL_set_verify(connection, asked, SSL_get_verify_callback(connection));
    int is_asked = SSL_version(connection) >= TLS1_3_VERSION ? SSL_verify_client_post_handshake(connection)
                                                             : SSL_renegotiate(connection);
    if (is_asked != 1 || SSL_do_handshake(connection) != 1)
        return 0;
    /* Otherwise the call would wait for the next request when the handshake is done. */
    SSL_clear_mode(connection, SSL_MODE_AUTO_RETRY);
    while (SSL_get0_peer_certificate(connection) == NULL || !SSL_is_init_finished(connection)) {
        char byte;
        int result = SSL_peek(connection, &byte, 1);
        if (result <= 0 && SSL_get_error(connection, result) != SSL_ERROR_WANT_READ)
            return 0;
    }
    return 1;
}

static void answer(SSL *connection)
{
    char names[2][64];
    if (!has_request(connection))
        return;
    const char *before = who(connection, names[0], sizeof names[0]);
    if (asked && strcmp(before, "nobody") == 0 && !ask(connection))
        return;
    const char *after = who(connection, names[1], sizeof names[1]);
    reply(connection, "%s %s\n", before, after);
}

static void serve(int listener)
{
    int stream = accept(listener, NULL, NULL);
    pid_t served = forks ? fork() : 0;
    if (served > 0) {
        waitpid(served, NULL, 0);
        close(stream);
        return;
    }
    SSL *connection = SSL_new(context);
    if (each[0] != '\0')
        SSL_set_verify(connection, mode_of(each), SSL_CTX_get_verify_callback(context));
    SSL_set_fd(connection, stream);
    answer(connection);
    /* Who says nothing only sees whether the server listens. */
    turn += BIO_number_read(SSL_get_rbio(connection)) > 0;
    SSL_free(connection);
    close(stream);
    if (forks)
        exit(0);
}

int main(int count, char **words)
{
    if (count != 4 || CRYPTO_set_mem_functions(allocate, reallocate, release) != 1)
        return 1;
    pair = words[2];
    int listener = listen_on(words[1]);
    if (listener < 0)
        return 1;
    obey(words[3]);
    /* What is read stays in no buffer, where `poll` would not see it. */
    setvbuf(stdin, NULL, _IONBF, 0);
    for (;;) {
        char line[512];
        struct pollfd both[] = {{.fd = is_child ? -1 : STDIN_FILENO, .events = POLLIN},
                                {.fd = child == 0 ? listener : -1, .events = POLLIN}};
        poll(both, 2, -1);
        if (both[0].revents != 0 && fgets(line, sizeof line, stdin) != NULL)
            obey(line);
        else if (both[0].revents == 0 && both[1].revents != 0)
            serve(listener);
        else if (both[0].revents != 0)
            return 0;
    }
}
