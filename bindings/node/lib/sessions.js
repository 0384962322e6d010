// Sessions of a server in the share's cache, by Node's `newSession` and `resumeSession`.
'use strict';

const { errorMonitor } = require('node:events');
const { Attached } = require('./attached.js');
const { bytesOf } = require('./frames.js');
const { described, TLS_1_2 } = require('./session_der.js');
const { REQUEST_BYTES } = require('./share.js');

const DEADLINE_MS = 25;
const MOST_WAITING = 256;
const MOST_WAITING_BYTES = 1024 * 1024;
// A share that is this late is given up.
const GIVEN_UP_MS = 5_000;
const SESSION_TIMEOUT_S = 300;
const MOST_LIFETIME_S = 604_800;
const ID_BYTES = 32;
// In base64, with the rest of the request, a session fits into a message. The share counts one that is too long for it.
const SENDABLE_BYTES = ((REQUEST_BYTES - 1_024) / 4) * 3;
const ANSWERS = { get: 'session', put: 'stored', hint: 'hinted', remove: 'removed' };

/**
 * Keeps a server's TLS 1.2 sessions in the share. `deadlineMs` is how long a handshake waits for a session at most.
 */
function sessions(server, options) {
  const kept = new Sessions(server, options);
  kept.follow();
  return kept;
}

class Sessions extends Attached {
  #deadlineMs;
  #listeners;
  #waiting = [];
  #longestBytes = 0;
  // The id is on the socket itself, because http2 gives handlers a proxy for it.
  #id = Symbol('rejoin');
  #counts = { asked: 0, found: 0, late: 0, stored: 0, noRoom: 0 };

  constructor(server, options) {
    for (const event of ['newSession', 'resumeSession']) {
      if (server?.listenerCount?.(event) > 0) throw new TypeError(`this server has a listener for ${event}: two would answer`);
    }
    super(server, options);
    this.#deadlineMs = options.deadlineMs ?? DEADLINE_MS;
    this.#listeners = {
      newSession: (id, session, done) => this.#store(id, session, done),
      resumeSession: (id, done) => this.#find(id, done),
      secureConnection: (socket) => this.#note(socket),
    };
    for (const [event, listener] of Object.entries(this.#listeners)) server.on(event, listener);
  }

  get status() {
    return { following: this.#longestBytes > 0, refused: this.refused, ...this.#counts };
  }

  /** Says when the client of this connection comes back, in seconds. Resolves to whether the share keeps its session. */
  async hint(socket, returnsInS) {
    const id = this.#idOf(socket);
    if (id === undefined) return false;
    const answer = await this.#ask({ hint: { id, returns_in_s: returnsInS } }, GIVEN_UP_MS);
    return answer?.hinted === true;
  }

  // A proxy throws when its connection is gone.
  #idOf(socket) {
    try {
      return socket[this.#id];
    } catch {
      return undefined;
    }
  }

  // A connection from before a change may make a session at any time, and Node does not tell which one did.
  get followsChanges() {
    return false;
  }

  opening(context) {
    return { sessions: { context } };
  }

  message(fields) {
    if (this.#longestBytes === 0) {
      const longest = fields.sessions?.longest_session;
      if (!(Number.isSafeInteger(longest) && longest > 0)) this.share.drop('the share does not say what it takes');
      else {
        this.#longestBytes = longest;
        this.emit('ready');
      }
      return;
    }
    if (!(this.#waiting[0]?.field in fields)) {
      this.share.drop('the share answers what was not asked');
      return;
    }
    this.#waiting.shift().answer(fields);
  }

  down() {
    this.#longestBytes = 0;
    for (const asked of this.#waiting.splice(0)) asked.answer(undefined);
  }

  left() {
    this.down();
  }

  close() {
    super.close();
    for (const [event, listener] of Object.entries(this.#listeners)) this.server.off(event, listener);
  }

  async #find(id, done) {
    this.#counts.asked += 1;
    const found = await this.#session(id);
    if (found !== null) this.#counts.found += 1;
    done(null, found);
  }

  async #session(id) {
    if (id.length === 0 || id.length > ID_BYTES) return null;
    const answer = await this.#ask({ get: id.toString('base64') }, this.#deadlineMs);
    const session = bytesOf(answer?.session);
    if (session === undefined) return null;
    const { version, id: own } = described(session);
    return version === TLS_1_2 && own.equals(id) ? session : null;
  }

  // The handshake goes on at once: requests are answered in order, so this process finds what it has just stored.
  #store(id, session, done) {
    done();
    if (described(session).version !== TLS_1_2) return;
    if (session.length > SENDABLE_BYTES) {
      this.#counts.noRoom += 1;
      return;
    }
    const lifetime = Math.min(this.server.sessionTimeout || SESSION_TIMEOUT_S, MOST_LIFETIME_S);
    const put = { id: id.toString('base64'), session: session.toString('base64'), lifetime_s: lifetime };
    this.#ask({ put }, GIVEN_UP_MS).then((answer) => {
      if (answer !== undefined) this.#counts[answer.stored === true ? 'stored' : 'noRoom'] += 1;
    });
  }

  // A fatal alert after the handshake: the session is not to be resumed (RFC 5246, section 7.2.2).
  #note(socket) {
    if (socket.getProtocol() !== 'TLSv1.2') return;
    const { id } = described(socket.getSession());
    if (id.length === 0) return;
    const text = id.toString('base64');
    socket[this.#id] = text;
    socket.once(errorMonitor, (error) => {
      if (String(error?.code).startsWith('ERR_SSL_')) this.#ask({ remove: text }, GIVEN_UP_MS);
    });
  }

  /** The answer, or undefined if there is none within `waitMs`. */
  #ask(request, waitMs) {
    const share = this.share;
    if (this.#longestBytes === 0 || this.#waiting.length >= MOST_WAITING || share.waitingBytes > MOST_WAITING_BYTES) {
      return Promise.resolve(undefined);
    }
    if (!share.send(request)) return Promise.resolve(undefined);
    return new Promise((resolve) => {
      const late = setTimeout(() => {
        this.#counts.late += 1;
        resolve(undefined);
      }, waitMs);
      const givenUp = setTimeout(() => share.drop('the share answers too late'), GIVEN_UP_MS).unref();
      this.#waiting.push({
        field: ANSWERS[Object.keys(request)[0]],
        answer(fields) {
          clearTimeout(late);
          clearTimeout(givenUp);
          resolve(fields);
        },
      });
    });
  }
}

module.exports = { sessions };
