// Ticket keys of the machine's ring in a server.
'use strict';

const crypto = require('node:crypto');
const { Attached } = require('./attached.js');
const { bytesOf, isObject } = require('./frames.js');

const KEY_BYTES = 48;
const PART_BYTES = 16;
const MOST_KEYS = 16;
// OpenSSL's own, where the server sets no sessionTimeout.
const SESSION_TIMEOUT_S = 300;
const MOST_TIMER_MS = 2 ** 31 - 1;
const NONE = Buffer.alloc(PART_BYTES);

/**
 * Gives a server the ring's ticket keys, and follows them. `several: false` uses nothing but `setTicketKeys`, which holds
 * one key.
 */
function ticketKeys(server, options) {
  const keys = new TicketKeys(server, options);
  keys.follow();
  return keys;
}

class TicketKeys extends Attached {
  #several;
  #era;
  #installed = null;
  #list = {};
  #isFollowing = false;

  constructor(server, options) {
    super(server, options);
    this.#era = new Era(!server.requestCert);
    this.#several = options.several !== false && typeof contextIn(server)?.enableTicketKeyCallback === 'function';
  }

  get status() {
    return {
      following: this.#isFollowing,
      keys: this.#era.ring.length,
      several: this.#several,
      refused: this.refused,
      ticketLifetimeS: this.#list.ticket_lifetime_s,
      changesInS: this.#list.changes_in_s,
    };
  }

  opening(context) {
    return { keys: { context, form: 'raw48' } };
  }

  message(fields) {
    const ring = ringOf(fields);
    if (ring === undefined) {
      this.share.drop('the share sent a list of keys that is none');
      return;
    }
    const old = this.#era.ring;
    this.#era.ring = ring;
    this.#list = fields;
    this.#isFollowing = true;
    this.#install();
    for (const { bytes } of old) bytes.fill(0);
    this.#mindTheLifetime(fields.ticket_lifetime_s);
    this.emit('keys', ring.length);
  }

  down() {
    this.#isFollowing = false;
  }

  renewed() {
    if (this.#era.ring.length > 0) this.#install();
  }

  // Connections that began before go on under a key of their own, which nobody else has.
  left() {
    const { ring } = this.#era;
    const own = keyOf(crypto.randomBytes(KEY_BYTES), 'encrypting');
    this.#isFollowing = false;
    this.#era.ring = [own];
    this.#era.before = [];
    this.#era = new Era(!this.server.requestCert);
    if (ring.length === 0) return;
    if (!this.#several) this.server.setTicketKeys(own.bytes);
    for (const { bytes } of ring) bytes.fill(0);
  }

  #install() {
    const context = contextIn(this.server);
    if (!this.#several) {
      this.server.setTicketKeys(this.#era.ring[0].bytes);
    } else if (context !== this.#installed) {
      const era = this.#era;
      era.keep(context.getTicketKeys(), this.server.sessionTimeout || SESSION_TIMEOUT_S);
      context.onticketkeycallback = (name, iv, isEncrypting) => era.key(name, isEncrypting);
      context.enableTicketKeyCallback();
    }
    this.#installed = context;
  }

  #mindTheLifetime(longestS) {
    const ownS = this.server.sessionTimeout || SESSION_TIMEOUT_S;
    if (!(ownS > longestS)) return;
    process.emitWarning(
      `this server's sessionTimeout of ${ownS} s is longer than the ring's tickets live: set it to ${longestS} or less`,
      { code: 'REJOIN_SESSION_TIMEOUT' },
    );
  }
}

/** The keys for as long as a server asks the same of its clients. */
class Era {
  ring = [];
  before = [];
  #renews;

  constructor(renews) {
    this.#renews = renews;
  }

  /** Keeps a context's first key until its tickets have expired. */
  keep(bytes, aliveS) {
    if (!Buffer.isBuffer(bytes)) return;
    const key = keyOf(bytes, 'opening');
    this.before.push(key);
    setTimeout(() => {
      this.before = this.before.filter((kept) => kept !== key);
    }, Math.min(1000 * aliveS, MOST_TIMER_MS)).unref();
  }

  // OpenSSL's callback: 0 for no key, 1 for a key, 2 if the client gets a new ticket, too. It must not throw. Clients that
  // use TLS 1.3 tickets once need a new one; but a new one lives anew, and a client's certificate is not checked again.
  key(name, isEncrypting) {
    if (isEncrypting) {
      const { hmac, aes, name: own } = this.ring[0];
      return [1, hmac, aes, own, crypto.randomBytes(PART_BYTES)];
    }
    const key = [...this.ring, ...this.before].find((one) => one.name.equals(name));
    return key === undefined ? [0, NONE, NONE] : [this.#renews ? 2 : 1, key.hmac, key.aes];
  }
}

/** The context of OpenSSL that a server's connections begin with. */
function contextIn(server) {
  return server._sharedCreds?.context;
}

/** The keys of a list, the encrypting one first, or undefined if it is not as the protocol says. */
function ringOf({ keys }) {
  if (!Array.isArray(keys) || keys.length < 1 || keys.length > MOST_KEYS) return undefined;
  const ring = keys.map((one) => {
    const bytes = isObject(one) ? bytesOf(one.key) : undefined;
    return bytes?.length === KEY_BYTES ? keyOf(bytes, one.state) : undefined;
  });
  return ring.includes(undefined) || ring[0].state !== 'encrypting' ? undefined : ring;
}

function keyOf(bytes, state) {
  const part = (index) => bytes.subarray(PART_BYTES * index, PART_BYTES * (index + 1));
  return { bytes, state, name: part(0), hmac: part(1), aes: part(2) };
}

module.exports = { ticketKeys };
