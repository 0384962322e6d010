/* Rejoin: TLS sessions in memory that processes share, and connections from the TLS manager.
 *
 * Link with -lrejoin -lssl -lcrypto. All functions but rejoin_version, rejoin_status_text,
 * rejoin_last_error and rejoin_close return a rejoin_status; rejoin_last_error then says why. A
 * failure never harms the program's own handshakes: it goes on without Rejoin.
 *
 * Made by cbindgen from the library's source: REJOIN_BLESS=1 cargo test -p rejoin-capi --test servers api */

#ifndef REJOIN_H
#define REJOIN_H

#include <stddef.h>
#include <stdint.h>
#include <openssl/ssl.h>

/**
 * No context issues stateless tickets, so that TLS 1.3 clients have sessions in the store, too.
 */
#define REJOIN_STATEFUL 1

/**
 * A new session waits until `rejoin_hint` or `rejoin_no_hint` is called for its connection, or until
 * that ends, and is stored then.
 */
#define REJOIN_WAIT_FOR_HINTS 2

/**
 * Stateless tickets are under the store's keys, which all its servers have and which change by
 * themselves, instead of the context's own.
 */
#define REJOIN_SHARE_TICKET_KEYS 4

/**
 * `policy`: whoever is expected back last goes first.
 */
#define REJOIN_POLICY_PREDICTIVE 0

/**
 * `policy`: whoever was not there for longest goes first.
 */
#define REJOIN_POLICY_LRU 1

/**
 * `flags`: nothing is verified. The connection neither uses nor leaves a session.
 */
#define REJOIN_UNVERIFIED 1

/**
 * `flags`: the connection neither uses nor leaves a session.
 */
#define REJOIN_UNSHARED 2

/**
 * `flags`: `socket` is a connected TCP socket, and used instead of connecting.
 */
#define REJOIN_OVER_SOCKET 4

/**
 * `early_data`: none was sent.
 */
#define REJOIN_EARLY_DATA_NOT_OFFERED 0

/**
 * `early_data`: the server has it.
 */
#define REJOIN_EARLY_DATA_ACCEPTED 1

/**
 * `early_data`: it was sent, and the server has not taken it. Send it again if that is wanted.
 */
#define REJOIN_EARLY_DATA_REJECTED 2

/**
 * `early_data`, where `rejoin_connect` failed: it was sent, and nobody knows whether the server has it.
 */
#define REJOIN_EARLY_DATA_SENT 3

/**
 * What a call came to. Numbers may be added; none changes its meaning.
 */
typedef enum {
  /**
   * It was done.
   */
  REJOIN_OK = 0,
  /**
   * A null pointer, a text that is none, or a setting or flag without meaning.
   */
  REJOIN_BAD_ARGUMENT = 1,
  /**
   * There is no store of this name, and no capacity to make it with.
   */
  REJOIN_NOT_FOUND = 2,
  /**
   * The folder has less room than the store takes.
   */
  REJOIN_NO_ROOM = 3,
  /**
   * The operating system refused.
   */
  REJOIN_REFUSED = 4,
  /**
   * The file belongs to another user, or others may write to it, or it is no file.
   */
  REJOIN_NOT_OURS = 5,
  /**
   * The store was made with other settings.
   */
  REJOIN_OTHER_SETTINGS = 6,
  /**
   * The store was made by another version.
   */
  REJOIN_OTHER_VERSION = 7,
  /**
   * The store's file is not what was written to it.
   */
  REJOIN_DAMAGED = 8,
  /**
   * Others make and remove the store again and again, or hold its ticket keys.
   */
  REJOIN_BUSY = 9,
  /**
   * The context is attached already.
   */
  REJOIN_ALREADY_ATTACHED = 10,
  /**
   * Nothing is attached to the connection, or to the process.
   */
  REJOIN_NOT_ATTACHED = 11,
  /**
   * OpenSSL failed: it is out of memory.
   */
  REJOIN_OPENSSL = 12,
  /**
   * A fault of this library.
   */
  REJOIN_INTERNAL = 13,
  /**
   * `rejoin manager` is not running, is busy, or does not answer: connect directly.
   */
  REJOIN_NO_MANAGER = 14,
  /**
   * There is no such name, nobody listens there, or no way leads there.
   */
  REJOIN_UNREACHABLE = 15,
  /**
   * The deadline passed.
   */
  REJOIN_TIMEOUT = 16,
  /**
   * The server does not speak TLS as it should, none of the protocols, or wants another client.
   */
  REJOIN_TLS = 17,
  /**
   * The server's certificate is not valid, or not believed.
   */
  REJOIN_CERTIFICATE = 18,
  /**
   * The connection ended, and the server did not say that this was all.
   */
  REJOIN_TRUNCATED = 19,
} rejoin_status;

/**
 * A store: sessions in memory that processes share. All threads may use it at the same time.
 */
typedef struct rejoin_store rejoin_store;

/**
 * What store to open. All that is zero has a meaning, so that
 * `{.struct_size = sizeof(rejoin_settings)}` are settings.
 */
typedef struct {
  /**
   * `sizeof(rejoin_settings)`, by which the library knows what the program was compiled with.
   */
  size_t struct_size;
  /**
   * The store's name: 1 to 64 of the characters `A-Z a-z 0-9 . _ -`, the first not a dot. Null:
   * `default`.
   */
  const char *name;
  /**
   * Where stores lie. Null: `/dev/shm`.
   */
  const char *folder;
  /**
   * Bytes that it may take. 0: it must be there, made by somebody else, and has its own settings.
   */
  uint64_t capacity_bytes;
  /**
   * `REJOIN_POLICY_PREDICTIVE` or `REJOIN_POLICY_LRU`: who goes when there is no room. Only looked
   * at with a capacity.
   */
  uint64_t policy;
} rejoin_settings;

/**
 * What was counted since the store was made. Everything but `sessions` only grows.
 */
typedef struct {
  /**
   * `sizeof(rejoin_counters)`, by which the library knows what the program was compiled with.
   */
  size_t struct_size;
  /**
   * Sessions stored now.
   */
  uint64_t sessions;
  /**
   * Handshakes that made a new session, where the store is attached.
   */
  uint64_t full_handshakes;
  /**
   * Handshakes that resumed one, of the store or of a stateless ticket, where the store is attached.
   */
  uint64_t resumed_handshakes;
  /**
   * Sessions stored so far.
   */
  uint64_t stored;
  /**
   * Lookups that found a session.
   */
  uint64_t hits;
  /**
   * Lookups that did not, for whatever reason, forged ids excepted.
   */
  uint64_t misses;
  /**
   * Ids presented by clients that no server with this key ever issued, where they are
   * presented.
   */
  uint64_t forged;
  /**
   * Hits whose session OpenSSL then declined to resume.
   */
  uint64_t rejected;
  /**
   * Misses because the session's lifetime was over.
   */
  uint64_t expired;
  /**
   * Misses because the session belongs to another session-id context.
   */
  uint64_t foreign_context;
  /**
   * Misses on a session that had been evicted, or refused, not long before.
   */
  uint64_t wanted_after_eviction;
  /**
   * Evicted, its client being overdue, or not known at all.
   */
  uint64_t evicted_overdue;
  /**
   * Evicted, its client being expected later than others, or less surely.
   */
  uint64_t evicted_latest;
  /**
   * Evicted by the policy `lru`.
   */
  uint64_t evicted_oldest;
  /**
   * Not stored: all others are expected sooner, or more surely.
   */
  uint64_t refused_returns_later;
  /**
   * Not stored: too large.
   */
  uint64_t refused_too_large;
  /**
   * Not stored: its lifetime was over.
   */
  uint64_t refused_expired;
  /**
   * Hits whose return time had been predicted.
   */
  uint64_t predictions;
  /**
   * Sum of |actual − predicted| over those, in milliseconds.
   */
  uint64_t prediction_error_ms;
} rejoin_counters;

/**
 * What connection. All that is zero but `host` and `port` has a meaning.
 */
typedef struct {
  /**
   * `sizeof(rejoin_request)`, by which the library knows what the program was compiled with.
   */
  size_t struct_size;
  /**
   * The server's name or address, for which its certificate must be valid.
   */
  const char *host;
  /**
   * 1 to 65,535.
   */
  uint64_t port;
  /**
   * `REJOIN_UNVERIFIED`, `REJOIN_UNSHARED`, `REJOIN_OVER_SOCKET`.
   */
  uint64_t flags;
  /**
   * Protocols of ALPN, the preferred one first, with commas between them. Null: none.
   */
  const char *alpn;
  /**
   * The authorities to believe, certificates in PEM. Null: the system's.
   */
  const char *authorities;
  /**
   * SHA-256 digests of certificates or public keys to believe instead, in hexadecimal, with commas
   * between them. Null: none.
   */
  const char *pins;
  /**
   * The client's certificates in PEM, its own first, and its key. Null: none.
   */
  const char *identity_chain;
  /**
   * With `identity_chain`.
   */
  const char *identity_key;
  /**
   * Sessions are shared under the same label only. Null: the empty one.
   */
  const char *label;
  /**
   * Sent with the first flight if a session allows it. Others can replay it to the server.
   */
  const uint8_t *early_data;
  /**
   * 16 KiB at most.
   */
  size_t early_data_bytes;
  /**
   * For resolving, connecting and the handshake together. 0: ten seconds.
   */
  uint64_t deadline_ms;
  /**
   * With `REJOIN_OVER_SOCKET`. It stays open here, and is to be closed.
   */
  int socket;
  /**
   * The path of the manager's socket. Null: the user's own manager, else the system's.
   */
  const char *manager;
} rejoin_request;

/**
 * A connection, as the manager described it. Texts end in a 0, and are empty where there is nothing
 * to say.
 */
typedef struct {
  /**
   * `sizeof(rejoin_session)`, by which the library knows what the program was compiled with.
   */
  size_t struct_size;
  /**
   * 1 if a session was resumed, 0 after a full handshake.
   */
  uint64_t resumed;
  /**
   * `REJOIN_EARLY_DATA_NOT_OFFERED`, `_ACCEPTED`, `_REJECTED` or `_SENT`.
   */
  uint64_t early_data;
  /**
   * The connection's name, for `rejoin_ended_well`.
   */
  char connection[33];
  /**
   * Why a session was resumed, or why not: a word of docs/manager-protocol.md.
   */
  char why[31];
  /**
   * `TLSv1.3` or `TLSv1.2`.
   */
  char version[16];
  /**
   * The cipher suite.
   */
  char cipher[64];
  /**
   * The group of the key exchange.
   */
  char group[32];
  /**
   * The protocol that was negotiated.
   */
  char alpn[256];
  /**
   * The server's address and port.
   */
  char peer[64];
  /**
   * The other name whose session was resumed.
   */
  char session_of[256];
  /**
   * The SHA-256 of the server's own certificate, in hexadecimal.
   */
  char certificate[65];
  /**
   * Where the manager was found.
   */
  char manager[111];
} rejoin_session;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * The version of this library, as `0.1.0`.
 */
const char *rejoin_version(void);

/**
 * What a status means, in a few words. Any number may be given. The text is never freed.
 */
const char *rejoin_status_text(int status);

/**
 * Why the last call of this thread failed that did: one line with cause and remedy. At most `bytes`
 * bytes are written to `buffer`, the last of them 0. Returns the length of the whole line without
 * the 0; nothing has failed yet if that is 0.
 */
size_t rejoin_last_error(char *buffer, size_t bytes);

/**
 * Opens the store that `settings` name, or makes it, and has `*store` point to it. Open it before
 * the process forks: its children have it then, and may close it.
 *
 * `*store` is to be given to `rejoin_close`. When this fails, it is null.
 */
rejoin_status rejoin_open(const rejoin_settings *settings, rejoin_store **store);

/**
 * Closes a store, which the program does not use from then on. The contexts that it is attached to
 * go on with it until they are freed. Null is no fault.
 */
void rejoin_close(rejoin_store *store);

/**
 * Has a server context keep its sessions in the store, and no longer itself.
 *
 * `flags` are 0, or some of `REJOIN_STATEFUL`, `REJOIN_WAIT_FOR_HINTS` and
 * `REJOIN_SHARE_TICKET_KEYS`. The context's session-id context stays as it is, and OpenSSL compares
 * it; the program's own session and info callbacks are called after ours. Where stateless tickets are
 * on, which is OpenSSL's default, and `REJOIN_STATEFUL` is not given, TLS 1.3 clients use those, and
 * have nothing in the store.
 *
 * Some callbacks of the program are replaced, for OpenSSL tells nobody what they are: the one of
 * `SSL_CTX_set_generate_session_id`; and with `REJOIN_SHARE_TICKET_KEYS` those of
 * `SSL_CTX_set_session_ticket_cb`, and the one for ticket keys.
 *
 * Set the context up first, attach then, and make connections last. Connections made before have the
 * store from their next handshake on; none may be in a handshake meanwhile. No other thread may use
 * the context during the call.
 *
 * Fails with `REJOIN_BAD_ARGUMENT` for a context that only connects, and with
 * `REJOIN_ALREADY_ATTACHED` for one that is attached, which stays as it is.
 */
rejoin_status rejoin_attach(const rejoin_store *store,
                            SSL_CTX *context,
                            uint32_t flags);

/**
 * The client of this connection will come back in `interval_ms` milliseconds. To be called by the
 * thread that uses the connection, after its handshake; the last call counts.
 *
 * Fails with `REJOIN_NOT_ATTACHED` before the handshake, and for connections of a context that is not
 * attached.
 */
rejoin_status rejoin_hint(SSL *connection,
                          uint64_t interval_ms);

/**
 * The program does not know when the client of this connection will come back: a session that waits
 * to hear is stored now. For the rest as `rejoin_hint`.
 */
rejoin_status rejoin_no_hint(SSL *connection);

/**
 * Writes what was counted in the store so far, by all processes, to `counters`, whose `struct_size`
 * must be set.
 */
rejoin_status rejoin_read_counters(const rejoin_store *store, rejoin_counters *counters);

/**
 * Attaches to all server contexts of the process, as the variables `REJOIN_CACHE`,
 * `REJOIN_CAPACITY` and so on say: once, whoever asks first, this function or the configuration
 * module. For a program that has its own way of making connections, and for the preload library; all
 * others have `rejoin_attach`.
 *
 * `context` is null, or one on which a connection is about to be made. Contexts that were made before
 * the first call cannot be seen by it: give each before its connections are made. For one that only
 * connects nothing is done. All threads may call it at the same time. Until the first call for it, no
 * connection was made on `context`.
 *
 * A failure is also one line on standard error, once, and all later calls fail as the first did.
 */
rejoin_status rejoin_attach_process(SSL_CTX *context);

/**
 * Asks the TLS manager for a connection, and has `*descriptor` be a stream socket that carries its
 * plaintext: TLS is spoken between the manager and the server. `shutdown(*descriptor, SHUT_WR)` tells
 * the server that no more will come. The descriptor is to be closed, is closed in programs that are
 * executed, and blocks.
 *
 * `session` is null, or has its `struct_size` set; the connection is described there. When this fails,
 * `*descriptor` is -1; after `REJOIN_NO_MANAGER` the program connects directly, if it can. If 0-RTT data may
 * have left by then, the session's `early_data` is `REJOIN_EARLY_DATA_SENT`, and nothing else of it has a
 * meaning.
 */
rejoin_status rejoin_connect(const rejoin_request *request,
                             int *descriptor,
                             rejoin_session *session);

/**
 * Asks whether the server said that what came was all, once the descriptor of `rejoin_connect` has
 * come to its end: an end of file alone does not tell. To be called by programs whose protocol does
 * not know by itself. `session` is as `rejoin_connect` described it.
 *
 * Fails with `REJOIN_TRUNCATED` if the server did not, or if that cannot be found out.
 */
rejoin_status rejoin_ended_well(const rejoin_session *session);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* REJOIN_H */
