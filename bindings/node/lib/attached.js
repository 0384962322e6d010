// Something of the share that a server uses for as long as it lives, also when its settings change.
'use strict';

const { EventEmitter } = require('node:events');
const { contextOf } = require('./policy.js');
const { Share } = require('./share.js');

const CHANGES = ['setSecureContext', 'addContext'];

/**
 * Follows the share for a server. `opening` makes the first message from the context. `message` and `down` come from the
 * share; `renewed` when the server has a new context of OpenSSL. Emits `down` for those who want to know.
 */
class Attached extends EventEmitter {
  #server;
  #options;
  #share = null;
  #first;
  #context;
  #refused;
  #unwrap = [];

  constructor(server, options) {
    super();
    if (typeof server?.setTicketKeys !== 'function') throw new TypeError('a server of tls, https, or http2.createSecureServer');
    if (typeof options?.context !== 'string') throw new TypeError('options.context: what all servers that share have in common');
    this.#server = server;
    this.#options = options;
    for (const name of CHANGES) this.#watch(name);
    server.on('close', this.#pause).on('listening', this.#resume);
  }

  // A server that is closed may listen again.
  #pause = () => {
    if (this.#share === null) return;
    this.#share.close();
    this.#share = null;
    this.down();
  };

  #resume = () => {
    this.follow();
    if (this.#share === null && this.#refused === undefined) this.#join();
  };

  get server() {
    return this.#server;
  }

  get share() {
    return this.#share;
  }

  /** Why this server shares nothing; undefined if it may. */
  get refused() {
    return this.#refused;
  }

  close() {
    this.#server.off('close', this.#pause).off('listening', this.#resume);
    this.#share?.close();
    this.#share = null;
    for (const unwrap of this.#unwrap.splice(0)) unwrap();
    this.left();
  }

  /** Looks at the server again; follows the share under another context if the server asks something else now. */
  follow() {
    const { context, refused } = this.#asked();
    if (context === this.#context && refused === this.#refused) return;
    this.#share?.close();
    this.#share = null;
    this.left();
    this.#context = context;
    this.#refused = refused;
    if (refused !== undefined) {
      process.emitWarning(`Rejoin shares nothing of this server: ${refused}`, { code: 'REJOIN_NOT_SHARED' });
      return;
    }
    this.#join();
  }

  #join() {
    this.#share = new Share(this.opening(this.#context), this.#options);
    this.#share.on('message', (fields) => this.message(fields));
    this.#share.on('down', (error) => {
      this.down(error);
      this.emit('down', error);
    });
  }

  #asked() {
    const asked = contextOf(this.#server, this.#options.context);
    this.#first ??= asked;
    if (this.followsChanges || asked.context === this.#first.context) return asked;
    this.#first = { refused: 'it asks something else of clients than when it started: start it again' };
    return this.#first;
  }

  /** False if what began under the old settings cannot be told from the rest. */
  get followsChanges() {
    return true;
  }

  left() {}
  down() {}
  renewed() {}

  // Node tells nobody that a server's context was replaced.
  #watch(name) {
    const server = this.#server;
    const own = Object.getOwnPropertyDescriptor(server, name);
    const original = server[name];
    const wrapped = (...given) => {
      const result = original.apply(server, given);
      this.follow();
      this.renewed();
      return result;
    };
    server[name] = wrapped;
    this.#unwrap.push(() => {
      if (server[name] !== wrapped) return;
      if (own === undefined) delete server[name];
      else Object.defineProperty(server, name, own);
    });
  }
}

module.exports = { Attached };
