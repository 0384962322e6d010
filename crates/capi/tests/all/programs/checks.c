/* Checks of the promises of rejoin.h, one for each word on the command line:
 *
 *   checks CERTIFICATE KEY STORE CHECK...
 *
 * Handshakes go through memory. */

#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "rejoin.h"

#define CHECK(condition)                                                       \
    do {                                                                       \
        if (!(condition)) {                                                    \
            char why[512] = "";                                                \
            rejoin_last_error(why, sizeof why);                                \
            fprintf(stderr, "line %d: %s (%s)\n", __LINE__, #condition, why);  \
            exit(1);                                                           \
        }                                                                      \
    } while (0)

static const char *certificate, *key, *name;

static SSL_CTX *new_server(void)
{
    SSL_CTX *context = SSL_CTX_new(TLS_server_method());
    CHECK(SSL_CTX_use_certificate_chain_file(context, certificate) == 1);
    CHECK(SSL_CTX_use_PrivateKey_file(context, key, SSL_FILETYPE_PEM) == 1);
    return context;
}

static rejoin_store *opened(void)
{
    rejoin_settings settings = {
        .struct_size = sizeof settings, .name = name, .capacity_bytes = 1 << 20};
    rejoin_store *store;
    CHECK(rejoin_open(&settings, &store) == REJOIN_OK && store != NULL);
    return store;
}

static rejoin_counters counted(const rejoin_store *store)
{
    rejoin_counters counters = {.struct_size = sizeof counters};
    CHECK(rejoin_read_counters(store, &counters) == REJOIN_OK);
    return counters;
}

static void shake_hands(SSL *server, SSL *client)
{
    BIO *ours, *theirs;
    CHECK(BIO_new_bio_pair(&ours, 0, &theirs, 0) == 1);
    SSL_set_bio(server, ours, ours);
    SSL_set_bio(client, theirs, theirs);
    SSL_set_accept_state(server);
    SSL_set_connect_state(client);
    int done = 0;
    for (int turn = 0; turn < 20 && !done; turn++)
        done = (SSL_do_handshake(client) == 1) & (SSL_do_handshake(server) == 1);
    CHECK(done);
    char byte = 0;
    CHECK(SSL_write(server, "x", 1) == 1 && SSL_read(client, &byte, 1) == 1);
}

/* Connects with the last session, and replaces it. Returns true if it was resumed. */
static int visit(SSL_CTX *context, int version, SSL_SESSION **session, void (*during)(SSL *))
{
    SSL_CTX *client_context = SSL_CTX_new(TLS_client_method());
    SSL_CTX_set_min_proto_version(client_context, version);
    SSL_CTX_set_max_proto_version(client_context, version);
    SSL *server = SSL_new(context), *client = SSL_new(client_context);
    if (*session != NULL)
        SSL_set_session(client, *session);
    shake_hands(server, client);
    if (during != NULL)
        during(server);
    int resumed = SSL_session_reused(server);
    CHECK(resumed == SSL_session_reused(client));
    SSL_SESSION_free(*session);
    *session = SSL_get1_session(client);
    SSL_shutdown(client);
    SSL_shutdown(server);
    SSL_free(server);
    SSL_free(client);
    SSL_CTX_free(client_context);
    return resumed;
}

static const int versions[] = {TLS1_2_VERSION, TLS1_3_VERSION};

/* Checks that a session made in one context resumes in the other, or does not. */
static void share(SSL_CTX *one, SSL_CTX *other, int expected)
{
    for (int at = 0; at < 2; at++) {
        SSL_SESSION *session = NULL;
        CHECK(!visit(one, versions[at], &session, NULL));
        CHECK(visit(other, versions[at], &session, NULL) == expected);
        SSL_SESSION_free(session);
    }
}

static void requests(void)
{
    rejoin_request good = {.struct_size = sizeof good, .host = "localhost", .port = 443};
    rejoin_request bad;
    rejoin_session session = {.struct_size = sizeof session};
    int descriptor = 7;

    good.manager = "/nowhere/manager.sock";
    CHECK(rejoin_connect(&good, NULL, NULL) == REJOIN_BAD_ARGUMENT);
    CHECK(rejoin_connect(NULL, &descriptor, NULL) == REJOIN_BAD_ARGUMENT && descriptor == -1);
    CHECK(rejoin_connect(&good, &descriptor, NULL) == REJOIN_NO_MANAGER);
#define REFUSED(change)                                                        \
    do {                                                                       \
        bad = good, change;                                                    \
        CHECK(rejoin_connect(&bad, &descriptor, &session) == REJOIN_BAD_ARGUMENT); \
        CHECK(descriptor == -1);                                               \
    } while (0)
    REFUSED(bad.struct_size = sizeof bad + 8);
    REFUSED(bad.struct_size = 4);
    REFUSED(bad.host = NULL);
    REFUSED(bad.host = "a b");
    REFUSED(bad.host = "\xff");
    REFUSED(bad.port = 0);
    REFUSED(bad.port = 65536);
    REFUSED(bad.flags = 8);
    REFUSED(bad.pins = "12");
    REFUSED((bad.authorities = "", bad.flags = REJOIN_UNVERIFIED));
    REFUSED(bad.identity_key = "key");
    REFUSED(bad.label = "\n");
    REFUSED(bad.early_data_bytes = 1);
    REFUSED((bad.early_data = (const uint8_t *)"", bad.early_data_bytes = 16385));
    REFUSED(bad.deadline_ms = 120001);
    REFUSED((bad.flags = REJOIN_OVER_SOCKET, bad.socket = -1));
    CHECK(rejoin_ended_well(NULL) == REJOIN_BAD_ARGUMENT);
    CHECK(rejoin_ended_well(&session) == REJOIN_BAD_ARGUMENT);
}

static void arguments(void)
{
    rejoin_store *store = (rejoin_store *)&store, *none = NULL;
    rejoin_settings good = {.struct_size = sizeof good, .name = name, .capacity_bytes = 1 << 20};
    rejoin_settings bad = good;
    rejoin_counters counters = {.struct_size = sizeof counters};
    SSL_CTX *context = new_server(), *client = SSL_CTX_new(TLS_client_method());
    char line[512];

    CHECK(rejoin_last_error(line, sizeof line) == 0 && line[0] == 0);
    CHECK(rejoin_open(NULL, &store) == REJOIN_BAD_ARGUMENT && store == NULL);
    CHECK(rejoin_open(&good, NULL) == REJOIN_BAD_ARGUMENT);
    CHECK(rejoin_last_error(line, 6) == strlen("store is null: it must point somewhere"));
    CHECK(strcmp(line, "store") == 0);
    CHECK(rejoin_last_error(NULL, 0) > 0 && rejoin_last_error(line, 0) > 0);
    bad.struct_size = sizeof bad + 8;
    CHECK(rejoin_open(&bad, &store) == REJOIN_BAD_ARGUMENT);
    bad.struct_size = 4;
    CHECK(rejoin_open(&bad, &store) == REJOIN_BAD_ARGUMENT);
    bad = good, bad.name = "a/b";
    CHECK(rejoin_open(&bad, &store) == REJOIN_BAD_ARGUMENT);
    bad = good, bad.name = "\xff";
    CHECK(rejoin_open(&bad, &store) == REJOIN_BAD_ARGUMENT);
    bad = good, bad.policy = 7;
    CHECK(rejoin_open(&bad, &store) == REJOIN_BAD_ARGUMENT);
    bad = good, bad.capacity_bytes = 10;
    CHECK(rejoin_open(&bad, &store) == REJOIN_BAD_ARGUMENT);
    bad = good, bad.capacity_bytes = UINT64_MAX;
    CHECK(rejoin_open(&bad, &store) != REJOIN_OK && store == NULL);
    bad = good, bad.folder = "/nonexistent";
    CHECK(rejoin_open(&bad, &store) == REJOIN_REFUSED);
    bad = good, bad.capacity_bytes = 0;
    CHECK(rejoin_open(&bad, &store) == REJOIN_NOT_FOUND);

    store = opened();
    bad = good, bad.capacity_bytes = 2 << 20;
    CHECK(rejoin_open(&bad, &none) == REJOIN_OTHER_SETTINGS && none == NULL);
    rejoin_last_error(line, sizeof line);
    CHECK(strstr(line, "rejoin store remove") != NULL && strchr(line, '\n') == NULL);
    /* The settings of a program of an earlier version: no capacity, so that the store must exist. */
    bad = good, bad.struct_size = offsetof(rejoin_settings, capacity_bytes);
    CHECK(rejoin_open(&bad, &none) == REJOIN_OK);
    rejoin_close(none);
    rejoin_close(NULL);

    CHECK(rejoin_attach(NULL, context, 0) == REJOIN_BAD_ARGUMENT);
    CHECK(rejoin_attach(store, NULL, 0) == REJOIN_BAD_ARGUMENT);
    CHECK(rejoin_attach(store, context, 16) == REJOIN_BAD_ARGUMENT);
    CHECK(rejoin_attach(store, client, 0) == REJOIN_BAD_ARGUMENT);
    CHECK(rejoin_attach(store, context, 0) == REJOIN_OK);
    CHECK(rejoin_attach(store, context, REJOIN_STATEFUL) == REJOIN_ALREADY_ATTACHED);

    CHECK(rejoin_read_counters(NULL, &counters) == REJOIN_BAD_ARGUMENT);
    CHECK(rejoin_read_counters(store, NULL) == REJOIN_BAD_ARGUMENT);
    counters.struct_size = 0;
    CHECK(rejoin_read_counters(store, &counters) == REJOIN_BAD_ARGUMENT);
    counters.struct_size = offsetof(rejoin_counters, hits);
    memset(&counters.hits, 0x55, sizeof counters.hits);
    CHECK(rejoin_read_counters(store, &counters) == REJOIN_OK);
    CHECK(counters.hits == 0x5555555555555555);
    struct {
        rejoin_counters known;
        uint64_t later;
    } longer = {.known = {.struct_size = sizeof longer}, .later = 1};
    CHECK(rejoin_read_counters(store, &longer.known) == REJOIN_OK && longer.later == 0);

    SSL *fresh = SSL_new(context), *foreign = SSL_new(client);
    CHECK(rejoin_hint(NULL, 1) == REJOIN_BAD_ARGUMENT);
    CHECK(rejoin_hint(fresh, 1) == REJOIN_NOT_ATTACHED);
    CHECK(rejoin_no_hint(foreign) == REJOIN_NOT_ATTACHED);
    SSL_free(fresh);
    SSL_free(foreign);

    CHECK(strcmp(rejoin_status_text(REJOIN_OK), "done") == 0);
    CHECK(strcmp(rejoin_status_text(REJOIN_INTERNAL), "a fault of Rejoin") == 0);
    CHECK(rejoin_status_text(-1) != NULL && rejoin_status_text(99) != NULL);
    CHECK(strlen(rejoin_version()) >= 5);
    SSL_CTX_free(context);
    SSL_CTX_free(client);
    rejoin_close(store);
}

static int own_made;
static SSL_SESSION *own_kept;

static int program_made(SSL *connection, SSL_SESSION *session)
{
    (void)connection;
    own_made++;
    if (own_kept != NULL)
        return 0;
    own_kept = session;
    return 1;
}

static void contexts(void)
{
    rejoin_store *store = opened();
    SSL_CTX *one = new_server(), *same = new_server(), *other = new_server(), *none = new_server();
    CHECK(SSL_CTX_set_session_id_context(one, (const unsigned char *)"one", 3) == 1);
    CHECK(SSL_CTX_set_session_id_context(same, (const unsigned char *)"one", 3) == 1);
    CHECK(SSL_CTX_set_session_id_context(other, (const unsigned char *)"other", 5) == 1);
    SSL_CTX_sess_set_new_cb(one, program_made);
    CHECK(rejoin_attach(store, one, REJOIN_STATEFUL) == REJOIN_OK);
    CHECK(rejoin_attach(store, same, REJOIN_STATEFUL) == REJOIN_OK);
    CHECK(rejoin_attach(store, other, REJOIN_STATEFUL) == REJOIN_OK);
    share(one, same, 1);
    CHECK(own_made >= 2 && own_kept != NULL);
    share(one, other, 0);
    share(one, none, 0);
    CHECK(counted(store).hits >= 2);
    SSL_SESSION_free(own_kept);
    /* Contexts keep the store that they are attached to. */
    rejoin_close(store);
    share(one, same, 1);
    SSL_CTX_free(one);
    SSL_CTX_free(same);
    SSL_CTX_free(other);
    SSL_CTX_free(none);
}

static void stateless(void)
{
    rejoin_store *store = opened();
    SSL_CTX *context = new_server();
    CHECK(rejoin_attach(store, context, 0) == REJOIN_OK);
    uint64_t stored = counted(store).stored;
    share(context, context, 1);
    CHECK(counted(store).stored == stored);
    SSL_CTX_free(context);
    rejoin_close(store);
}

/* One context cannot decrypt the other's tickets if OpenSSL has its own keys. */
static void ticket_keys(void)
{
    rejoin_store *store = opened();
    SSL_CTX *one = new_server(), *same = new_server();
    uint64_t stored = counted(store).stored;
    share(one, same, 0);
    CHECK(rejoin_attach(store, one, REJOIN_SHARE_TICKET_KEYS) == REJOIN_OK);
    CHECK(rejoin_attach(store, same, REJOIN_SHARE_TICKET_KEYS) == REJOIN_OK);
    share(one, same, 1);
    CHECK(counted(store).stored == stored);
    CHECK(counted(store).resumed_handshakes == 2);
    SSL_CTX_free(one);
    SSL_CTX_free(same);
    rejoin_close(store);
}

/* Connects with a session and early data. Returns true if it was accepted. */
static int early(SSL_CTX *context, SSL_SESSION *session)
{
    SSL_CTX *client_context = SSL_CTX_new(TLS_client_method());
    SSL *server = SSL_new(context), *client = SSL_new(client_context);
    BIO *ours, *theirs;
    CHECK(BIO_new_bio_pair(&ours, 0, &theirs, 0) == 1);
    SSL_set_bio(server, ours, ours);
    SSL_set_bio(client, theirs, theirs);
    SSL_set_accept_state(server);
    SSL_set_connect_state(client);
    CHECK(SSL_set_session(client, session) == 1);
    size_t count, all = 0;
    CHECK(SSL_write_early_data(client, "early", 5, &count) == 1 && count == 5);
    int has_read = 0, done = 0;
    for (int turn = 0; turn < 20 && !done; turn++) {
        char bytes[16];
        int state = has_read ? SSL_READ_EARLY_DATA_FINISH
                             : SSL_read_early_data(server, bytes, sizeof bytes, &count);
        all += state == SSL_READ_EARLY_DATA_SUCCESS ? count : 0;
        has_read = state == SSL_READ_EARLY_DATA_FINISH;
        done = (SSL_do_handshake(client) == 1) & (has_read && SSL_do_handshake(server) == 1);
    }
    CHECK(done);
    int accepted = SSL_get_early_data_status(server) == SSL_EARLY_DATA_ACCEPTED;
    CHECK(accepted == SSL_session_reused(server));
    CHECK(all == (accepted ? 5 : 0));
    /* Without this OpenSSL lets no connection have the session any more. */
    SSL_shutdown(client);
    SSL_shutdown(server);
    SSL_free(server);
    SSL_free(client);
    SSL_CTX_free(client_context);
    return accepted;
}

static void early_data(void)
{
    rejoin_store *store = opened();
    SSL_CTX *one = new_server(), *same = new_server();
    CHECK(SSL_CTX_set_max_early_data(one, 16384) == 1);
    CHECK(SSL_CTX_set_max_early_data(same, 16384) == 1);
    CHECK(rejoin_attach(store, one, REJOIN_EARLY_DATA_ONCE) == REJOIN_OK);
    CHECK(rejoin_attach(store, same, REJOIN_EARLY_DATA_ONCE) == REJOIN_OK);
    for (int turn = 0; turn < 4; turn++) {
        SSL_SESSION *session = NULL;
        CHECK(!visit(one, TLS1_3_VERSION, &session, NULL));
        SSL_CTX *first = turn % 2 ? same : one;
        CHECK(early(first, session));
        CHECK(!early(one, session) && !early(same, session));
        SSL_SESSION_free(session);
    }
    CHECK(counted(store).resumed_handshakes == 4);
    SSL_CTX_free(one);
    SSL_CTX_free(same);
    rejoin_close(store);
}

static rejoin_store *hinted;

static void says_when(SSL *connection)
{
    uint64_t before = counted(hinted).stored;
    CHECK(rejoin_hint(connection, 60000) == REJOIN_OK);
    CHECK(counted(hinted).stored > before);
    CHECK(rejoin_hint(connection, UINT64_MAX) == REJOIN_OK);
}

static void says_nothing(SSL *connection)
{
    uint64_t before = counted(hinted).stored;
    CHECK(rejoin_no_hint(connection) == REJOIN_OK);
    CHECK(counted(hinted).stored > before);
}

static void hints(void)
{
    hinted = opened();
    SSL_CTX *context = new_server();
    CHECK(rejoin_attach(hinted, context, REJOIN_STATEFUL | REJOIN_WAIT_FOR_HINTS) == REJOIN_OK);
    for (int at = 0; at < 2; at++) {
        SSL_SESSION *session = NULL;
        CHECK(!visit(context, versions[at], &session, says_when));
        CHECK(visit(context, versions[at], &session, NULL));
        SSL_SESSION_free(session);
        session = NULL;
        CHECK(!visit(context, versions[at], &session, says_nothing));
        CHECK(visit(context, versions[at], &session, NULL));
        SSL_SESSION_free(session);
    }
    SSL_CTX_free(context);
    rejoin_close(hinted);
}

/* Connections that were made before, with handshakes. */
static void late(void)
{
    rejoin_store *store = opened();
    SSL_CTX *context = new_server();
    SSL_SESSION *session = NULL;
    CHECK(!visit(context, TLS1_2_VERSION, &session, NULL));
    SSL *early = SSL_new(context), *client;
    SSL_CTX *client_context = SSL_CTX_new(TLS_client_method());
    CHECK(rejoin_attach(store, context, REJOIN_STATEFUL) == REJOIN_OK);
    client = SSL_new(client_context);
    uint64_t stored = counted(store).stored;
    shake_hands(early, client);
    CHECK(counted(store).stored > stored);
    CHECK(rejoin_hint(early, 1000) == REJOIN_OK);
    SSL_free(early);
    SSL_free(client);
    SSL_CTX_free(client_context);
    SSL_SESSION_free(session);
    share(context, context, 1);
    SSL_CTX_free(context);
    rejoin_close(store);
}

static SSL_CTX *shared_context;
static rejoin_store *shared_store;

static void *many_visits(void *unused)
{
    (void)unused;
    for (int round = 0; round < 50; round++)
        share(shared_context, shared_context, 1);
    CHECK(rejoin_attach(shared_store, NULL, 0) == REJOIN_BAD_ARGUMENT);
    return NULL;
}

static void threads(void)
{
    pthread_t others[2];
    char line[64];
    shared_store = opened();
    shared_context = new_server();
    CHECK(rejoin_attach(shared_store, shared_context, REJOIN_STATEFUL) == REJOIN_OK);
    for (int at = 0; at < 2; at++)
        CHECK(pthread_create(&others[at], NULL, many_visits, NULL) == 0);
    for (int at = 0; at < 2; at++)
        CHECK(pthread_join(others[at], NULL) == 0);
    CHECK(counted(shared_store).hits >= 200);
    /* The failures of other threads are not this thread's. */
    CHECK(rejoin_last_error(line, sizeof line) == 0);
    SSL_CTX_free(shared_context);
    rejoin_close(shared_store);
}

static void *attach_and_visit(void *context)
{
    for (int round = 0; round < 20; round++) {
        CHECK(rejoin_attach_process(context) == REJOIN_OK);
        SSL *connection = SSL_new(context);
        SSL_free(connection);
    }
    return NULL;
}

/* Attaches by the variables, with an earlier context, and one that another store is attached to. */
static void process(void)
{
    SSL_CTX *before = new_server();
    pthread_t threads[2];
    rejoin_store *own;
    for (int at = 0; at < 2; at++)
        CHECK(pthread_create(&threads[at], NULL, attach_and_visit, before) == 0);
    for (int at = 0; at < 2; at++)
        CHECK(pthread_join(threads[at], NULL) == 0);
    CHECK(rejoin_attach_process(NULL) == REJOIN_OK);
    SSL_CTX *after = new_server();
    share(before, after, 1);
    SSL_CTX *other = new_server();
    /* A program may have a store of its own as well. */
    char mine[80];
    snprintf(mine, sizeof mine, "%s-own", name);
    rejoin_settings settings = {
        .struct_size = sizeof settings, .name = mine, .capacity_bytes = 1 << 20};
    CHECK(rejoin_open(&settings, &own) == REJOIN_OK);
    CHECK(rejoin_attach(own, other, REJOIN_STATEFUL) == REJOIN_OK);
    share(before, other, 0);
    share(other, other, 1);
    CHECK(counted(own).hits == 2);
    CHECK(rejoin_attach(own, before, 0) == REJOIN_ALREADY_ATTACHED);
    rejoin_close(own);
    SSL_CTX_free(before);
    SSL_CTX_free(other);
    SSL_CTX_free(after);
}

static void process_fails(void)
{
    SSL_CTX *context = new_server();
    CHECK(rejoin_attach_process(context) == REJOIN_NOT_ATTACHED);
    CHECK(rejoin_attach_process(context) == REJOIN_NOT_ATTACHED);
    share(context, context, 1);
    SSL_CTX_free(context);
}

static void children(void)
{
    rejoin_store *store = opened();
    SSL_CTX *context = new_server();
    int status;
    CHECK(rejoin_attach(store, context, REJOIN_STATEFUL) == REJOIN_OK);
    pid_t child = fork();
    if (child == 0) {
        share(context, context, 1);
        rejoin_close(store);
        _exit(0);
    }
    share(context, context, 1);
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    CHECK(counted(store).hits >= 4);
    SSL_CTX_free(context);
    rejoin_close(store);
}

/* Handshakes through memory have no address. */
static void sourceless(void)
{
    rejoin_settings settings = {.struct_size = sizeof settings,
                                .name = name,
                                .capacity_bytes = 1 << 20,
                                .source_percent = 10,
                                .source_by = REJOIN_SOURCE_ADDRESS};
    rejoin_store *store;
    CHECK(rejoin_open(&settings, &store) == REJOIN_OK);
    SSL_CTX *context = new_server();
    CHECK(rejoin_attach(store, context, REJOIN_STATEFUL) == REJOIN_OK);
    share(context, context, 1);
    SSL_CTX_free(context);
    rejoin_close(store);
}

static const struct {
    const char *name;
    void (*run)(void);
} checks[] = {
    {"arguments", arguments},
    {"requests", requests}, {"contexts", contexts}, {"stateless", stateless},
    {"ticket-keys", ticket_keys}, {"early-data", early_data},
    {"hints", hints},         {"late", late},         {"threads", threads},
    {"process", process},     {"process-fails", process_fails}, {"children", children},
    {"sourceless", sourceless},
};

int main(int count, char **words)
{
    CHECK(count > 4);
    certificate = words[1], key = words[2], name = words[3];
    for (int at = 4; at < count; at++) {
        size_t found = 0;
        while (found < sizeof checks / sizeof *checks && strcmp(checks[found].name, words[at]) != 0)
            found++;
        CHECK(found < sizeof checks / sizeof *checks);
        checks[found].run();
    }
    return 0;
}
