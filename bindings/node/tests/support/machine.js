// What the tests start: certificates, servers in processes of their own, clients, a share that a test can bend, and
// the real share and manager of REJOIN.
'use strict';

const { spawn, spawnSync } = require('node:child_process');
const fs = require('node:fs');
const net = require('node:net');
const os = require('node:os');
const path = require('node:path');
const tls = require('node:tls');
const events = require('node:events');
const { Frames, encode } = require('../../lib/frames.js');

const REJOIN = process.env.REJOIN && fs.existsSync(process.env.REJOIN) ? process.env.REJOIN : undefined;
const NO_REJOIN = REJOIN === undefined && 'NOT TESTED: set REJOIN to the path of `rejoin`';

/** A folder that is removed at the end. */
function folder(t) {
  const made = fs.mkdtempSync(path.join(os.tmpdir(), 'rejoin-node-'));
  t.after(() => fs.rmSync(made, { recursive: true, force: true }));
  return made;
}

function openssl(...given) {
  const { status, stderr } = spawnSync('openssl', given, { encoding: 'utf8' });
  if (status !== 0) throw new Error(`openssl ${given.join(' ')}: ${stderr}`);
}

/** A self-signed certificate for these names, and its key, in PEM. */
function certify(t, names) {
  const made = folder(t);
  const [key, cert] = [path.join(made, 'key.pem'), path.join(made, 'cert.pem')];
  const kind = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes', '-days', '2'];
  const named = ['-subj', `/CN=${names[0]}`, '-addext', `subjectAltName=${names.map((name) => `DNS:${name}`).join(',')}`];
  openssl('req', '-x509', ...kind, '-keyout', key, '-out', cert, ...named);
  return { key: fs.readFileSync(key, 'utf8'), cert: fs.readFileSync(cert, 'utf8') };
}

/** An authority, and what it issues: a certificate for these names, and its key, in PEM. */
function authority(t) {
  const made = folder(t);
  const at = (name) => path.join(made, name);
  const kind = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes'];
  openssl('req', '-x509', ...kind, '-days', '2', '-keyout', at('ca.key'), '-out', at('ca.pem'), '-subj', `/CN=${path.basename(made)}`);
  return {
    file: at('ca.pem'),
    cert: fs.readFileSync(at('ca.pem'), 'utf8'),
    issue(...names) {
      fs.writeFileSync(at('names'), `subjectAltName=${names.map((name) => `DNS:${name}`).join(',')}`);
      openssl('req', ...kind, '-keyout', at('key'), '-out', at('request'), '-subj', `/CN=${names[0]}`);
      const by = ['-CA', at('ca.pem'), '-CAkey', at('ca.key'), '-CAcreateserial', '-extfile', at('names')];
      openssl('x509', '-req', '-in', at('request'), '-days', '2', '-out', at('cert'), ...by);
      return { key: fs.readFileSync(at('key'), 'utf8'), cert: fs.readFileSync(at('cert'), 'utf8') };
    },
  };
}

/** The next event, or a failure after half a minute. */
function once(emitter, event) {
  return events.once(emitter, event, { signal: AbortSignal.timeout(30_000) });
}

/** Resolves when `is` does, or fails after 3,000 attempts. */
async function until(is, what) {
  for (let tries = 0; tries < 3000; tries += 1) {
    if (await is()) return;
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
  throw new Error(`not in time: ${what}`);
}

/** A client's connection: what the server said, the session it gave, whether the presented one was resumed. */
function visit(port, { request, ...options }) {
  return new Promise((resolve, reject) => {
    const client = tls.connect({ port, host: '127.0.0.1', servername: 'localhost', ...options });
    let said = '';
    let session;
    let resumed;
    const late = setTimeout(() => client.destroy(new Error('no answer within half a minute')), 30_000);
    client.on('secureConnect', () => {
      resumed = client.isSessionReused();
      if (request !== undefined) client.write(request);
      // OpenSSL's client tells of no ticket that a resumption over TLS 1.2 brings.
      if (client.getProtocol() === 'TLSv1.2') session = client.getSession();
    });
    client.on('session', (made) => (session = made));
    client.on('data', (piece) => (said += piece));
    client.on('error', reject);
    client.on('end', () => client.end());
    client.on('close', () => {
      clearTimeout(late);
      resolve({ resumed, said, session });
    });
  });
}

/** A server in this process that says whom it has before it, and ends. */
async function serve(t, server) {
  server.on('secureConnection', (socket) => {
    socket.on('error', () => {});
    if (server instanceof tls.Server && server.listenerCount('request') === 0) socket.end(said(socket));
  });
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  t.after(() => server.close());
  return server.address().port;
}

function said(socket) {
  return JSON.stringify({ authorized: socket.authorized, name: socket.getPeerCertificate()?.subject?.CN });
}

/** `support/server.js` in a process of its own. */
async function serveElsewhere(t, settings) {
  const child = spawn(process.execPath, [path.join(__dirname, 'server.js'), JSON.stringify(settings)], {
    stdio: ['pipe', 'pipe', 'inherit'],
  });
  t.after(() => child.kill());
  const [line] = await once(child.stdout, 'data');
  return { port: Number(String(line).trim()), child };
}

/** A share of the test's own: `answer` gets each message and the connection, and sends what it likes. */
class Share {
  connections = new Set();
  asked = [];

  constructor(socket, answer) {
    this.socket = socket;
    this.answer = answer;
  }

  async start() {
    fs.rmSync(this.socket, { force: true });
    this.listener = net.createServer((connection) => {
      this.connections.add(connection);
      connection.on('error', () => {});
      connection.on('close', () => this.connections.delete(connection));
      const frames = new Frames(128 * 1024);
      connection.on('data', (piece) => {
        frames.push(piece);
        for (let fields = frames.next(); fields; fields = frames.next()) {
          this.asked.push(fields);
          this.answer(fields, connection);
        }
      });
    });
    await new Promise((resolve) => this.listener.listen(this.socket, resolve));
  }

  stop() {
    for (const connection of this.connections) connection.destroy();
    return new Promise((resolve) => this.listener.close(resolve));
  }
}

function send(connection, fields) {
  connection.write(encode(fields, 1 << 20));
}

/** A share with these keys for everybody; `turn` sends another list. */
async function keyShare(t, socket, list) {
  const share = new Share(socket, (fields, connection) => {
    share.followers.add(connection);
    connection.once('close', () => share.followers.delete(connection));
    send(connection, { rejoin: 1, ...share.list });
  });
  share.followers = new Set();
  share.list = list;
  share.turn = (next) => {
    share.list = next;
    for (const connection of share.followers) send(connection, next);
  };
  await share.start();
  t.after(() => share.stop());
  return share;
}

/** A share that keeps sessions in a map. */
async function sessionShare(t, socket) {
  const kept = new Map();
  const share = new Share(socket, (fields, connection) => {
    const { context } = fields.sessions ?? {};
    if (context !== undefined) {
      connection.context = context;
      send(connection, { rejoin: 1, sessions: { longest_session: 16_376 } });
    } else if (fields.get !== undefined) {
      send(connection, { session: kept.get(`${connection.context}/${fields.get}`) ?? null });
    } else if (fields.put !== undefined) {
      kept.set(`${connection.context}/${fields.put.id}`, fields.put.session);
      send(connection, { stored: true });
    } else if (fields.hint !== undefined) {
      send(connection, { hinted: kept.has(`${connection.context}/${fields.hint.id}`) });
    } else send(connection, { removed: kept.delete(`${connection.context}/${fields.remove}`) });
  });
  share.kept = kept;
  await share.start();
  t.after(() => share.stop());
  return share;
}

/** `rejoin` as a daemon; killed at the end. */
async function daemon(t, command, socket, environment = {}) {
  const child = spawn(REJOIN, command, { stdio: ['ignore', 'ignore', 'pipe'], env: { ...process.env, ...environment } });
  let told = '';
  child.stderr.on('data', (piece) => (told += piece));
  t.after(() => child.kill('SIGKILL'));
  await until(() => {
    if (child.exitCode !== null) throw new Error(`rejoin ${command.join(' ')}: ${told}`);
    return listens(socket);
  }, `rejoin ${command[0]} listens`);
  return child;
}

function listens(socket) {
  return new Promise((resolve) => {
    const probe = net.connect(socket, () => {
      probe.destroy();
      resolve(true);
    });
    probe.on('error', () => resolve(false));
  });
}

function rejoin(...given) {
  const { status, stdout, stderr } = spawnSync(REJOIN, given, { encoding: 'utf8' });
  if (status !== 0) throw new Error(`rejoin ${given.join(' ')}: ${stderr}`);
  return stdout;
}

module.exports = {
  NO_REJOIN, REJOIN, Share, authority, certify, daemon, folder, keyShare, listens, once, rejoin, send, serve, serveElsewhere, sessionShare, until, visit,
};
