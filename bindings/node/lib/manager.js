// Messages to the TLS manager, and its answers (docs/manager-protocol.md).
'use strict';

const fs = require('node:fs');
const path = require('node:path');
const { distrust, reach } = require('./believed.js');
const { Frames, VERSION, encode, isObject } = require('./frames.js');

const REQUEST_BYTES = 256 * 1024;
const ANSWER_BYTES = 1024 * 1024;
const SYSTEM_SOCKET = '/run/rejoin/manager.sock';
const CLIENT_SETTINGS = '/etc/rejoin/client.toml';
// Past a request's own deadline, and for those that have none.
const PATIENCE_MS = 3_000;
const OF_THE_MANAGER = ['busy', 'not_permitted', 'not_running', 'shutting_down', 'silent', 'unsupported_version'];
// What Node's own connections say.
const CODES = {
  name_not_found: 'ENOTFOUND',
  refused: 'ECONNREFUSED',
  unreachable: 'EHOSTUNREACH',
  timeout: 'ETIMEDOUT',
  certificate_expired: 'CERT_HAS_EXPIRED',
  certificate_not_yet_valid: 'CERT_NOT_YET_VALID',
  certificate_wrong_name: 'ERR_TLS_CERT_ALTNAME_INVALID',
  certificate_unknown_issuer: 'UNABLE_TO_GET_ISSUER_CERT_LOCALLY',
  certificate_revoked: 'CERT_REVOKED',
};

/** The manager gave no connection. `kind` is a word of the protocol's list. */
class ManagerError extends Error {
  constructor(kind, detail, remedy = '', earlyData = undefined) {
    super(remedy ? `${detail}; ${remedy}` : detail);
    this.name = 'ManagerError';
    this.kind = kind;
    this.code = CODES[kind] ?? 'REJOIN_MANAGER';
    this.detail = detail;
    this.remedy = remedy;
    /** `sent` if 0-RTT data had left: the server may have acted on it. */
    this.earlyData = earlyData;
  }

  /** True if the manager itself failed the program, so that a direct connection may succeed. */
  get isTheManagers() {
    return OF_THE_MANAGER.includes(this.kind);
  }
}

/** The manager's counts. */
async function stats(manager) {
  const { answer, connected } = await ask({ stats: {} }, { manager, waitMs: PATIENCE_MS });
  connected.destroy();
  return answer.stats;
}

/** Asks the manager: its answer, the socket that it came over, and where that was. Fails with a ManagerError. */
async function ask(request, { manager, waitMs, signal }) {
  let message;
  try {
    message = encode({ rejoin: VERSION, ...request }, REQUEST_BYTES);
  } catch (error) {
    throw new ManagerError('too_large', error.message);
  }
  const { connected, where } = await reached(manager, waitMs);
  try {
    signal?.throwIfAborted();
    const answer = await exchange(connected, message, waitMs, signal);
    return { answer: checked(answer), connected, where };
  } catch (error) {
    connected.destroy();
    throw error instanceof ManagerError ? error : new ManagerError('silent', `the manager does not answer: ${error.message}`);
  }
}

async function reached(manager, waitMs) {
  let first;
  for (const where of places(manager)) {
    try {
      return { connected: await reach(where, namedUser(where), waitMs), where };
    } catch (error) {
      first ??= notRunning(where, error);
    }
  }
  throw first;
}

function places(manager) {
  if (manager !== undefined) return [manager];
  const own = process.env.XDG_RUNTIME_DIR;
  return [...(own ? [path.join(own, 'rejoin.sock')] : []), SYSTEM_SOCKET];
}

function notRunning(where, error) {
  if (error.code === 'REJOIN_UNTRUSTED') return new ManagerError('not_running', error.message, 'connect directly');
  const detail = `\`rejoin manager\` is not running: nobody listens at ${where}: ${error.message}`;
  return new ManagerError('not_running', detail, 'start it, or connect directly');
}

/** The user in the settings, which root alone may write: a list of one or none. */
function namedUser(where) {
  let file;
  try {
    file = fs.openSync(CLIENT_SETTINGS);
  } catch (error) {
    if (error.code === 'ENOENT') return [];
    throw error;
  }
  try {
    const { uid, mode } = fs.fstatSync(file);
    if (uid !== 0 || mode & 0o022) throw distrust(where, `${CLIENT_SETTINGS}: only root may own it and write to it`);
    const said = /^(?:\s|#.*)*user\s*=\s*"([^"\n]+)"(?:\s|#.*)*$/.exec(fs.readFileSync(file, 'utf8'));
    if (said === null) throw distrust(where, `${CLIENT_SETTINGS}: write user = "NAME"`);
    return [said[1]];
  } finally {
    fs.closeSync(file);
  }
}

function exchange(connected, message, waitMs, signal) {
  return new Promise((resolve, reject) => {
    const frames = new Frames(ANSWER_BYTES);
    const timer = setTimeout(() => done(reject, new Error(`nothing for ${waitMs} ms`)), waitMs);
    const stop = () => done(reject, new Error('the program gave up'));
    const hungUp = () => done(reject, new Error('it hung up'));
    const failed = (error) => done(reject, error);
    const read = (piece) => {
      frames.push(piece);
      try {
        const answer = frames.next();
        if (answer === undefined) return;
        connected.pause();
        done(resolve, answer);
        if (frames.rest().length > 0) connected.unshift(frames.rest());
      } catch (error) {
        done(reject, error);
      }
    };
    const done = (then, value) => {
      clearTimeout(timer);
      signal?.removeEventListener('abort', stop);
      connected.off('data', read).off('end', hungUp).off('close', hungUp).off('error', failed);
      then(value);
    };
    connected.on('data', read).on('end', hungUp).on('close', hungUp).on('error', failed);
    signal?.addEventListener('abort', stop);
    connected.write(message);
  });
}

function checked(answer) {
  if (answer.rejoin !== VERSION) {
    throw new ManagerError('unsupported_version', `the manager speaks version ${answer.rejoin}`);
  }
  if (isObject(answer.error)) {
    const { kind, detail, remedy, early_data: earlyData } = answer.error;
    throw new ManagerError(String(kind), String(detail), remedy, earlyData);
  }
  return answer;
}

module.exports = { ManagerError, PATIENCE_MS, ask, stats };
