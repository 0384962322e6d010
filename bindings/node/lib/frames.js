// Messages of the share and of the manager: four bytes of length, and JSON.
'use strict';

const HEADER_BYTES = 4;
const VERSION = 1;

/** A message as bytes. Throws a RangeError if it has more than `mostBytes`. */
function encode(fields, mostBytes) {
  const text = Buffer.from(JSON.stringify(fields));
  if (text.length > mostBytes) throw new RangeError(`a message of ${text.length} bytes, more than ${mostBytes}`);
  const header = Buffer.alloc(HEADER_BYTES);
  header.writeUInt32BE(text.length);
  return Buffer.concat([header, text]);
}

/** Reads messages from bytes that come in pieces, cut anywhere. */
class Frames {
  #mostBytes;
  #pieces = [];
  #bytes = 0;

  constructor(mostBytes) {
    this.#mostBytes = mostBytes;
  }

  push(piece) {
    this.#pieces.push(piece);
    this.#bytes += piece.length;
  }

  /** The next message, or undefined if it has not arrived. Throws if it is too long, or not an object of JSON. */
  next() {
    if (this.#bytes < HEADER_BYTES) return undefined;
    if (this.#pieces[0].length < HEADER_BYTES) this.#join();
    const length = this.#pieces[0].readUInt32BE(0);
    if (length > this.#mostBytes) throw new RangeError(`an answer of ${length} bytes, more than ${this.#mostBytes}`);
    if (this.#bytes < HEADER_BYTES + length) return undefined;
    this.#join();
    const text = this.#pieces[0].subarray(HEADER_BYTES, HEADER_BYTES + length).toString();
    this.#pieces[0] = this.#pieces[0].subarray(HEADER_BYTES + length);
    this.#bytes -= HEADER_BYTES + length;
    return parsed(text);
  }

  /** The bytes behind the last message. */
  rest() {
    this.#join();
    return this.#pieces[0];
  }

  #join() {
    if (this.#pieces.length !== 1) this.#pieces = [Buffer.concat(this.#pieces)];
  }
}

function parsed(text) {
  let fields;
  try {
    fields = JSON.parse(text);
  } catch {
    // The parser's own message would quote the text, which may hold a key.
    throw new TypeError('an answer that is not JSON');
  }
  if (!isObject(fields)) throw new TypeError('an answer that is not an object');
  return fields;
}

function isObject(value) {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

const BASE64 = /^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$/;

/** The bytes of a base64 text, or undefined if it is none. */
function bytesOf(text) {
  return typeof text === 'string' && BASE64.test(text) ? Buffer.from(text, 'base64') : undefined;
}

module.exports = { Frames, VERSION, bytesOf, encode, isObject };
