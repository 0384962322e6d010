// The beginning of OpenSSL's SSL_SESSION in DER: version, protocol, cipher, id.
'use strict';

const TLS_1_2 = 0x0303;
const INTEGER = 0x02;
const OCTETS = 0x04;
const SEQUENCE = 0x30;
const NOTHING = Object.freeze({ version: 0, id: Buffer.alloc(0) });

/** The protocol's version and the id; zero and empty if the bytes are not a session. */
function described(bytes) {
  if (!Buffer.isBuffer(bytes)) return NOTHING;
  const fields = element(bytes, SEQUENCE);
  const format = fields && element(fields.body, INTEGER);
  const version = format && element(format.rest, INTEGER);
  const cipher = version && element(version.rest, OCTETS);
  const id = cipher && element(cipher.rest, OCTETS);
  if (!id || version.body.length > 4 || version.body.length === 0) return NOTHING;
  return { version: version.body.readUIntBE(0, version.body.length), id: id.body };
}

function element(bytes, tag) {
  if (bytes.length < 2 || bytes[0] !== tag) return undefined;
  let length = bytes[1];
  let start = 2;
  if (length >= 0x80) {
    const count = length - 0x80;
    if (count < 1 || count > 3 || bytes.length < 2 + count) return undefined;
    length = bytes.readUIntBE(2, count);
    start += count;
  }
  if (bytes.length < start + length) return undefined;
  return { body: bytes.subarray(start, start + length), rest: bytes.subarray(start + length) };
}

module.exports = { TLS_1_2, described };
