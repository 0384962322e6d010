// Node's HTTP clients over the manager's connections, and directly where it cannot serve.
'use strict';

const crypto = require('node:crypto');
const https = require('node:https');
const net = require('node:net');
const tls = require('node:tls');
const { DEADLINE_MS, MOST_DEADLINE_MS, connect } = require('./connection.js');
const { ManagerError } = require('./manager.js');

const UNDICI = Symbol.for('undici.globalDispatcher.1');
// What the manager does not do as Node does: connections with one of these are Node's own.
const OF_NODE = [
  'checkServerIdentity', 'ciphers', 'clientCertEngine', 'crl', 'dhparam', 'ecdhCurve', 'family', 'localAddress', 'localPort',
  'lookup', 'maxVersion', 'passphrase', 'pfx', 'privateKeyEngine', 'privateKeyIdentifier', 'pskCallback', 'secureContext',
  'secureOptions', 'secureProtocol', 'sigalgs', 'socket', 'socketPath', 'ticketKeys', 'path', 'requestOCSP',
];
const OF_THE_NETWORK = ['name_not_found', 'refused', 'unreachable', 'timeout'];
const VERSIONS = { 'TLSv1.2': '1.2', 'TLSv1.3': '1.3' };

/**
 * An `https.Agent` whose connections come from the manager. `rejoin` are wishes of `connect`, and `direct: false`: no
 * connection rather than one without the manager.
 */
class Agent extends https.Agent {
  #rejoin;

  constructor({ rejoin = {}, ...options } = {}) {
    super(options);
    this.#rejoin = rejoin;
  }

  createConnection(options, created) {
    if (options.proxyEnv || typeof created !== 'function') return super.createConnection(options, created);
    const own = (callback) => {
      const direct = super.createConnection(options, callback);
      // Without a callback of its own, an https.Agent returns the connection.
      if (direct !== undefined) callback(null, direct);
    };
    this.#open(options, own).then((connection) => created(null, connection), created);
    return undefined;
  }

  // To Node a timeout is an event, and no end: an attempt that takes longer goes on as a connection of Node's own.
  async #open(options, own) {
    const { timeout } = options;
    const patienceMs = mayBeWithout(this.#rejoin) ? DEADLINE_MS : MOST_DEADLINE_MS;
    const wishes = { deadline_ms: timeout > 0 ? timeout : patienceMs, ...this.#rejoin };
    let isLate = false;
    const mayBeOwn = (error) => {
      isLate = error.kind === 'timeout' && error.earlyData === undefined && this.#rejoin.deadline_ms === undefined;
      return isLate || mayBeDirect(error);
    };
    const connection = await open(options, wishes, own, mayBeOwn);
    // So much time has passed; the request listens when it has its connection.
    if (isLate && timeout > 0 && timeout <= MOST_DEADLINE_MS) setImmediate(() => connection.emit('timeout'));
    else if (timeout > 0) connection.setTimeout(timeout);
    return connection;
  }
}

/** The same for undici: `new undici.Agent({ connect: connector() })`. */
function connector({ rejoin = {}, ...tlsOptions } = {}) {
  return (wanted, created) => {
    const { hostname, host, port, protocol, servername, timeout = DEADLINE_MS } = wanted;
    const name = (hostname ?? host).replace(/^\[(.*)\]$/, '$1');
    const number = Number(port) || (protocol === 'https:' ? 443 : 80);
    if (protocol !== 'https:') return dialled(net.connect({ host: name, port: number }), 'connect', timeout, created);
    const options = { ...tlsOptions, host: name, port: number, servername: servername || undefined, timeout };
    const own = (callback) => {
      const asked = { ALPNProtocols: ['http/1.1'], ...options };
      asked.servername ??= net.isIP(name) ? '' : name;
      dialled(tls.connect(asked), 'secureConnect', timeout, callback);
    };
    const wishes = timeout > 0 ? { deadline_ms: timeout, ...rejoin } : rejoin;
    open(options, wishes, own).then((connection) => created(null, connection), created);
  };
}

/**
 * A dispatcher for Node's own `fetch`. Node does not export undici's classes; this uses that of the dispatcher that
 * Node's `fetch` has by itself. Fails with an Error if there is none.
 */
async function dispatcher({ rejoin = {}, ...options } = {}) {
  // Node makes its dispatcher when it is first used.
  if (globalThis[UNDICI] === undefined) await fetch('data:,');
  const Undici = globalThis[UNDICI]?.constructor;
  if (Undici?.name !== 'Agent') {
    throw new Error("this Node's fetch has no dispatcher to copy: install undici, and give its Agent rejoin's connector()");
  }
  return new Undici({ ...options, connect: connector({ rejoin, ...options.connect }) });
}

/**
 * The manager's connection, or Node's own by `own` where the manager does not serve. A trust or an identity that only the
 * manager knows allows no other connection.
 */
async function open(options, { direct, ...rejoin }, own, mayBeOwn = mayBeDirect) {
  const isDirect = mayBeWithout({ direct, ...rejoin });
  const wishes = wishesOf(options, rejoin);
  if (wishes === undefined) {
    if (!isDirect) throw new ManagerError('bad_request', 'these options of TLS are not for the manager');
    return called(own);
  }
  try {
    return await connect(options.host ?? 'localhost', Number(options.port) || 443, wishes);
  } catch (error) {
    if (isDirect && error instanceof ManagerError && mayBeOwn(error)) return called(own);
    throw error;
  }
}

function mayBeWithout({ direct = true, trust, identity }) {
  return direct && trust === undefined && identity === undefined;
}

// Node has other authorities and suites, and judges certificates less strictly: it decides by itself. What it would say
// of the network is known.
function mayBeDirect(error) {
  return error.earlyData === undefined && !OF_THE_NETWORK.includes(error.kind);
}

/** What to ask the manager for; undefined if it would do something else than Node. */
function wishesOf(options, rejoin) {
  if (OF_NODE.some((name) => options[name] !== undefined && options[name] !== null)) return undefined;
  const verified = options.rejectUnauthorized ?? process.env.NODE_TLS_REJECT_UNAUTHORIZED !== '0';
  if (verified === false) return undefined;
  const name = options.servername || options.host;
  const minVersion = options.minVersion ?? tls.DEFAULT_MIN_VERSION;
  if (name !== options.host || !(minVersion in VERSIONS) || !isUsual()) return undefined;
  const alpn = protocols(options.ALPNProtocols ?? ['http/1.1']);
  const bundle = options.ca === undefined ? '' : pem(options.ca);
  const identity = identityOf(options);
  if (alpn === undefined || bundle === undefined || identity === undefined) return undefined;
  if (options.ca === undefined && rejoin.trust === undefined && !trustsAsUsual()) return undefined;
  return {
    alpn,
    min_version: VERSIONS[minVersion],
    ...(bundle === '' ? {} : { trust: { bundle } }),
    ...identity,
    ...(options.signal ? { signal: options.signal } : {}),
    ...rejoin,
  };
}

/** True if the process has Node's own defaults, but for the oldest version, which the manager can follow. */
function isUsual() {
  return tls.DEFAULT_MAX_VERSION === 'TLSv1.3' && tls.DEFAULT_ECDH_CURVE === 'auto'
    && tls.DEFAULT_CIPHERS === crypto.constants.defaultCoreCipherList;
}

let judged;

/** True if the process trusts no fewer authorities than Node does: from Node 22.19 `tls.setDefaultCACertificates` may say so. */
function trustsAsUsual() {
  if (!tls.setDefaultCACertificates) return true;
  const trusted = tls.getCACertificates('default');
  if (judged?.trusted !== trusted) {
    // Node may write one certificate with other line ends.
    const text = (certificate) => certificate.replace(/\s/g, '');
    const all = new Set(trusted.map(text));
    judged = { trusted, asUsual: tls.getCACertificates('bundled').every((of) => all.has(text(of))) };
  }
  return judged.asUsual;
}

function identityOf({ cert, key }) {
  if (!cert && !key) return {};
  const chain = pem(cert);
  const text = pem(key);
  return chain && text ? { identity: { chain, key: text } } : undefined;
}

/** The text of PEM as Node takes it: texts, bytes, or a list of them; undefined if it is anything else. */
function pem(given) {
  const pieces = (Array.isArray(given) ? given : [given]).map((piece) => (Buffer.isBuffer(piece) ? piece.toString() : piece));
  return pieces.every((piece) => typeof piece === 'string' && piece.includes('-----BEGIN ')) ? pieces.join('\n') : undefined;
}

function protocols(given) {
  return Array.isArray(given) && given.every((name) => typeof name === 'string') ? given : undefined;
}

function called(own) {
  return new Promise((resolve, reject) => {
    own((error, connection) => (error ? reject(error) : resolve(connection)));
  });
}

function dialled(socket, event, afterMs, created) {
  const timer = setTimeout(() => {
    const late = new Error(`no connection within ${afterMs} ms`);
    late.code = 'UND_ERR_CONNECT_TIMEOUT';
    socket.destroy(late);
  }, afterMs).unref();
  const failed = (error) => done(error);
  const made = () => done(null, socket);
  const done = (...result) => {
    clearTimeout(timer);
    socket.off(event, made).off('error', failed);
    created(...result);
  };
  socket.once(event, made).once('error', failed);
}

module.exports = { Agent, connector, dispatcher };
