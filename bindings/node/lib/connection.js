// A connection through the manager: plaintext here, and TLS from the manager on.
'use strict';

const crypto = require('node:crypto');
const { Duplex } = require('node:stream');
const { PATIENCE_MS, ask } = require('./manager.js');

const DEADLINE_MS = 10_000;
const MOST_DEADLINE_MS = 120_000;

/** The connection ended, and the server did not say that this was all. */
class Truncated extends Error {
  constructor(why) {
    super(`the connection broke off: ${why}`);
    this.name = 'Truncated';
    this.code = 'ECONNRESET';
  }
}

/**
 * A connection to `host` and `port`, from the manager. `wishes` are the other fields of docs/manager-protocol.md in its
 * spelling, and `manager`, the path of its socket, and `signal`. Fails with a ManagerError.
 */
async function connect(host, port = 443, { manager, signal, ...wishes } = {}) {
  const deadlineMs = Math.min(Math.max(Math.trunc(wishes.deadline_ms ?? DEADLINE_MS), 1), MOST_DEADLINE_MS);
  const request = { connect: { ...wishes, host, port, deadline_ms: deadlineMs } };
  const { answer, connected, where } = await ask(request, { manager, waitMs: deadlineMs + PATIENCE_MS, signal });
  return new Connection(connected, answer.connected, where);
}

/** A duplex stream with what HTTP clients use of a TLSSocket. An end that the server did not announce is an error. */
class Connection extends Duplex {
  #socket;
  #manager;
  #isEnding = false;

  constructor(socket, session, manager) {
    super({ allowHalfOpen: false });
    this.#socket = socket;
    this.#manager = manager;
    /** The manager's facts about the connection: docs/manager-protocol.md. */
    this.session = session;
    this.encrypted = true;
    this.authorized = session.why !== 'not_verified';
    this.alpnProtocol = session.alpn ?? false;
    this.connecting = false;
    const [, address, port] = /^\[?(.*?)\]?:(\d+)$/.exec(session.peer) ?? [];
    this.remoteAddress = address;
    this.remotePort = Number(port);
    socket.on('data', (piece) => this.push(piece) || socket.pause());
    socket.on('end', () => this.#end());
    socket.on('error', (error) => this.#broke(error));
    socket.on('close', () => this.destroyed || this.readableEnded || this.#end());
    socket.on('timeout', () => this.emit('timeout'));
  }

  // The end of file does not say whether the server sent everything: the manager knows.
  async #end() {
    if (this.#isEnding) return;
    this.#isEnding = true;
    let end;
    try {
      const question = { end: { connection: this.session.connection } };
      const { answer, connected } = await ask(question, { manager: this.#manager, waitMs: PATIENCE_MS });
      connected.destroy();
      end = answer.end;
    } catch (error) {
      end = error.message;
    }
    if (end === 'clean') this.push(null);
    else this.destroy(new Truncated(end === 'truncated' ? 'the server did not say that this was all' : end));
  }

  #broke(error) {
    if (error.code === 'ECONNRESET') this.#end();
    else this.destroy(error);
  }

  _read() {
    this.#socket.resume();
  }

  _write(bytes, encoding, done) {
    this.#socket.write(bytes, encoding, (error) => done(error?.code === 'EPIPE' ? null : error));
  }

  _final(done) {
    this.#socket.end(done);
  }

  _destroy(error, done) {
    this.#socket.destroy();
    done(error);
  }

  setTimeout(afterMs, callback) {
    if (callback !== undefined) this.once('timeout', callback);
    this.#socket.setTimeout(afterMs);
    return this;
  }

  get timeout() {
    return this.#socket.timeout;
  }

  setNoDelay() {
    return this;
  }

  setKeepAlive() {
    return this;
  }

  ref() {
    this.#socket.ref();
    return this;
  }

  unref() {
    this.#socket.unref();
    return this;
  }

  // The methods of a TLSSocket.

  getProtocol() {
    return this.session.version;
  }

  getCipher() {
    return { name: this.session.cipher, standardName: this.session.cipher, version: this.session.version };
  }

  isSessionReused() {
    return this.session.resumed;
  }

  getSession() {
    return undefined;
  }

  getPeerX509Certificate() {
    const der = this.session.chain[0]?.der;
    return der === undefined ? undefined : new crypto.X509Certificate(Buffer.from(der, 'base64'));
  }

  getPeerCertificate() {
    return this.getPeerX509Certificate()?.toLegacyObject() ?? {};
  }
}

module.exports = { DEADLINE_MS, MOST_DEADLINE_MS, Truncated, connect };
