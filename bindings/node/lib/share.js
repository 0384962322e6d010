// A connection to `rejoin share` that comes back by itself (docs/share-protocol.md).
'use strict';

const { EventEmitter } = require('node:events');
const { reach } = require('./believed.js');
const { Frames, VERSION, encode, isObject } = require('./frames.js');

const SOCKET = '/run/rejoin/share.sock';
const REQUEST_BYTES = 128 * 1024;
const ANSWER_BYTES = 256 * 1024;
const CONNECT_MS = 3_000;
const FIRST_RETRY_MS = 1_000;
const LAST_RETRY_MS = 60_000;
const CONTEXT_BYTES = 255;

/**
 * Follows the share: connects, says what for, and emits `message` for each answer. When the connection breaks, emits
 * `down` with the error, and connects again after a second, then two, four, and up to a minute. Keeps no process alive.
 */
class Share extends EventEmitter {
  #opening;
  #where;
  #users;
  #firstRetryMs;
  #retryMs;
  #connected = null;
  #timer = null;
  #isClosed = false;

  /** `opening` are the fields of the first message: `keys` or `sessions`. */
  constructor(opening, { socket = SOCKET, user, retryMs = FIRST_RETRY_MS } = {}) {
    super();
    this.#opening = encode({ rejoin: VERSION, ...opening }, REQUEST_BYTES);
    this.#where = socket;
    this.#users = user === undefined ? [] : [user];
    this.#firstRetryMs = this.#retryMs = retryMs;
    this.#start();
  }

  /** Bytes that the share has not read yet. */
  get waitingBytes() {
    return this.#connected === null ? 0 : this.#connected.writableLength;
  }

  /** Sends a message; false if there is no connection, or the message is too long. */
  send(fields) {
    if (this.#connected === null) return false;
    try {
      this.#connected.write(encode(fields, REQUEST_BYTES));
      return true;
    } catch {
      return false;
    }
  }

  /** Breaks a connection that is of no use, and connects again later. */
  drop(why) {
    if (this.#connected !== null) this.#down(this.#connected, new Error(why));
  }

  close() {
    this.#isClosed = true;
    clearTimeout(this.#timer);
    const connected = this.#connected;
    this.#connected = null;
    if (connected !== null) connected.destroy();
  }

  async #start() {
    let connected;
    try {
      connected = await reach(this.#where, this.#users, CONNECT_MS);
    } catch (error) {
      this.#again(error);
      return;
    }
    if (this.#isClosed) {
      connected.destroy();
      return;
    }
    connected.unref();
    this.#connected = connected;
    const frames = new Frames(ANSWER_BYTES);
    connected.on('data', (piece) => this.#read(connected, frames, piece));
    connected.on('error', (error) => this.#down(connected, error));
    connected.on('end', () => this.#down(connected, new Error('the share hung up')));
    connected.on('close', () => this.#down(connected, new Error('the share hung up')));
    connected.write(this.#opening);
  }

  #read(connected, frames, piece) {
    frames.push(piece);
    try {
      for (let fields = frames.next(); fields !== undefined; fields = frames.next()) {
        if (this.#connected !== connected) return;
        this.emit('message', answered(fields));
        this.#retryMs = this.#firstRetryMs;
      }
    } catch (error) {
      this.#down(connected, error);
    }
  }

  #down(connected, error) {
    if (this.#connected !== connected) return;
    this.#connected = null;
    connected.destroy();
    this.#again(error);
  }

  #again(error) {
    if (this.#isClosed) return;
    this.#timer = setTimeout(() => this.#start(), this.#retryMs).unref();
    this.#retryMs = Math.min(2 * this.#retryMs, LAST_RETRY_MS);
    this.emit('down', error);
  }
}

function answered(fields) {
  if (fields.rejoin !== undefined && fields.rejoin !== VERSION) throw new Error(`the share speaks version ${fields.rejoin}`);
  if (isObject(fields.error)) throw new Error(`the share refuses (${fields.error.kind}): ${fields.error.message}`);
  return fields;
}

/** Throws unless `context` is one that the share takes, with `roomBytes` to spare. */
function checkContext(context, roomBytes) {
  if (typeof context !== 'string' || context === '' || Buffer.byteLength(context) > CONTEXT_BYTES - roomBytes) {
    throw new TypeError(`context: a text of 1 to ${CONTEXT_BYTES - roomBytes} bytes, the same on all servers that share`);
  }
}

module.exports = { REQUEST_BYTES, Share, checkContext };
