// What a server asks of its clients. It is part of the context under which keys and sessions are shared, so that
// nothing resumes where Node's own handshake would have asked for something else.
'use strict';

const crypto = require('node:crypto');
const tls = require('node:tls');
const { checkContext } = require('./share.js');

const PREFIX = 'node:';
const HASH_CHARACTERS = 22;

/**
 * The share's context for a server: the operator's word, and a hash of what the server asks. An object with `context`,
 * or with `refused`: why this server shares nothing.
 */
function contextOf(server, word) {
  checkContext(word, PREFIX.length + 1 + HASH_CHARACTERS);
  const refused = refusal(server);
  if (refused !== undefined) return { refused };
  const asked = JSON.stringify([
    server.requestCert,
    server.requestCert ? certificates(server.ca) : [],
    server.requestCert ? digests(server.crl) : [],
    server.requestCert ? Boolean(server.allowPartialTrustChain) : false,
    names(server),
    server.ciphers || tls.DEFAULT_CIPHERS,
    server.minVersion || tls.DEFAULT_MIN_VERSION,
    server.maxVersion || tls.DEFAULT_MAX_VERSION,
    server.secureProtocol || '',
    server.secureOptions || 0,
  ]);
  const hash = crypto.createHash('sha256').update(asked).digest('base64url').slice(0, HASH_CHARACTERS);
  return { context: `${PREFIX}${word}:${hash}` };
}

function refusal(server) {
  const keys = hidden(server, 'pskcallback');
  if (typeof server.requestCert !== 'boolean' || keys === undefined) {
    return 'this Node does not show what the server asks of clients';
  }
  // OpenSSL does not look at the key again when it resumes, and nobody sees whose keys the callback knows.
  if (server[keys]) return 'it authenticates clients by keys (pskCallback), which are not checked again';
  if (!server.requestCert) return undefined;
  if (server.rejectUnauthorized !== true) {
    return 'with rejectUnauthorized: false some releases of Node take a client without a certificate for authorized ' +
      'when it resumes over TLS 1.3';
  }
  if (!server.ca) return 'the authorities of clients are not known: set `ca`';
  if (server.pfx) return 'the authorities of clients may be in `pfx`: give `key`, `cert` and `ca` instead';
  if (chooses(server)) return 'other contexts (addContext, SNICallback) may have other authorities of clients';
  return undefined;
}

/** True if the server's authorities may depend on the name that a client asks for. */
function chooses(server) {
  if (!Array.isArray(server._contexts) || server._contexts.length > 0) return true;
  const callback = hidden(server, 'snicallback');
  return callback === undefined || server[callback] !== undefined;
}

/** The symbol under which Node keeps an option of a server, or undefined if this Node has none. */
function hidden(server, description) {
  return Object.getOwnPropertySymbols(server).find((key) => key.description === description);
}

/** The names in the server's certificates: a renewed certificate has the same ones. */
function names(server) {
  if (!server.cert) return digests(server.pfx);
  return unique(pieces(server.cert).map((certificate) => {
    try {
      const read = new crypto.X509Certificate(certificate);
      return (read.subjectAltName || read.subject || '').split(', ').sort().join(', ');
    } catch {
      return digest(certificate);
    }
  }));
}

const PEM = /-----BEGIN (?:TRUSTED |X509 )?CERTIFICATE-----[^-]+-----END (?:TRUSTED |X509 )?CERTIFICATE-----/g;

function certificates(given) {
  return unique(pieces(given).flatMap((bytes) => {
    const found = bytes.toString('latin1').match(PEM);
    return found === null ? [digest(bytes)] : found.map((text) => digest(text.replace(/\s+/g, '')));
  }));
}

function digests(given) {
  return unique(pieces(given).map(digest));
}

/** An option of Node that is a text, bytes, or a list of either or of objects. */
function pieces(given) {
  if (given === undefined || given === null) return [];
  if (Array.isArray(given)) return given.flatMap(pieces);
  if (typeof given === 'string') return [Buffer.from(given)];
  if (ArrayBuffer.isView(given)) return [Buffer.from(given.buffer, given.byteOffset, given.byteLength)];
  return Object.values(given).flatMap(pieces);
}

function digest(bytes) {
  return crypto.createHash('sha256').update(bytes).digest('base64url');
}

function unique(texts) {
  return [...new Set(texts)].sort();
}

module.exports = { contextOf };
