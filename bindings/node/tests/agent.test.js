// Clients through the real manager, against real servers; and what they do without it.
'use strict';

const assert = require('node:assert');
const crypto = require('node:crypto');
const fs = require('node:fs');
const https = require('node:https');
const net = require('node:net');
const path = require('node:path');
const { spawn } = require('node:child_process');
const test = require('node:test');
const tls = require('node:tls');
const { Agent, ManagerError, connect, connector, dispatcher, stats } = require('rejoin-tls');
const { NO_REJOIN, REJOIN, Share, authority, certify, daemon, folder, once, serve } = require('./support/machine.js');

const BIG = crypto.randomBytes(3_000_000);

/** A manager that trusts the authority, a server, and how often each side was asked. */
async function machine(t, { options = {}, handler = hello, pair } = {}) {
  const made = folder(t);
  const ca = authority(t);
  const manager = path.join(made, 'm.sock');
  fs.writeFileSync(path.join(made, 'manager.toml'), `system_bundle = ${JSON.stringify(ca.file)}\n`);
  const child = await daemon(t, ['manager', '--socket', manager, '--settings', path.join(made, 'manager.toml')], manager);
  const server = https.createServer({ ...(pair ?? ca.issue('localhost')), ...options(ca) }, handler);
  const seen = { connections: 0, resumed: 0 };
  server.on('secureConnection', (socket) => {
    seen.connections += 1;
    seen.resumed += socket.isSessionReused();
  });
  const port = await serve(t, server);
  return { ca, child, manager, port, seen, server };
}

function hello(request, response) {
  response.end('hello');
}

/** One request by an agent of its own. */
async function get(port, agentOptions, requestOptions = {}) {
  const agent = new Agent(agentOptions);
  try {
    return await ask({ host: 'localhost', port, agent, ...requestOptions });
  } finally {
    agent.destroy();
  }
}

function ask(options, body) {
  return new Promise((resolve, reject) => {
    const request = https.request(options, (response) => {
      const pieces = [];
      const { socket } = response;
      response.on('data', (piece) => pieces.push(piece)).on('error', reject);
      response.on('end', () => resolve({ body: Buffer.concat(pieces), session: socket.session, socket }));
    });
    request.on('error', reject).end(body);
  });
}

const none = () => ({});

test('agents share sessions with each other and with other programs', { skip: NO_REJOIN }, async (t) => {
  const { manager, port, seen } = await machine(t, { options: none });
  // Node's server gives two tickets, and with a resumption none.
  for (const resumed of [false, true]) {
    const { body, session, socket } = await get(port, { rejoin: { manager } });
    assert.strictEqual(String(body), 'hello');
    assert.deepStrictEqual([session.resumed, socket.isSessionReused(), socket.authorized], [resumed, resumed, true]);
    assert.match(socket.getPeerCertificate().subject.CN, /localhost/);
    assert.strictEqual(socket.remotePort, port);
  }
  const shell = spawn(REJOIN, ['connect', `localhost:${port}`, '--manager', manager], { stdio: ['pipe', 'ignore', 'inherit'] });
  shell.stdin.write('GET / HTTP/1.0\r\n\r\n');
  assert.deepStrictEqual(await once(shell, 'exit'), [0, null]);
  assert.deepStrictEqual(seen, { connections: 3, resumed: 2 });
  const { handshakes } = await stats(manager);
  assert.deepStrictEqual([handshakes.full, handshakes.resumed], [1, 2]);
});

const NO_LIBRARY = process.env.REJOIN_LIBRARY === undefined && 'NOT TESTED: set REJOIN_LIBRARY to the path of `librejoin.so`';

test('an agent and curl share one full handshake', { skip: NO_REJOIN || NO_LIBRARY }, async (t) => {
  const { ca, manager, port, seen } = await machine(t, { options: none });
  const words = ['run', '--client', '--library', process.env.REJOIN_LIBRARY, '--manager', manager, '--'];
  const curl = ['curl', '-sS', '--cacert', ca.file, `https://localhost:${port}/`];
  const env = { ...process.env, REJOIN_PATIENCE_MS: '10000', REJOIN_DEBUG: '1' };
  const child = spawn(REJOIN, [...words, ...curl], { env, stdio: ['ignore', 'pipe', 'pipe'] });
  let [answer, told] = ['', ''];
  child.stdout.on('data', (piece) => (answer += piece));
  child.stderr.on('data', (piece) => (told += piece));
  assert.deepStrictEqual(await once(child, 'close'), [0, null], told);
  assert.strictEqual(answer, 'hello', told);
  const { session } = await get(port, { rejoin: { manager } });
  assert.strictEqual(session.resumed, true, told);
  assert.deepStrictEqual(seen, { connections: 2, resumed: 1 });
});

test('what is sent arrives, in both directions, over connections that stay', { skip: NO_REJOIN }, async (t) => {
  const echo = (request, response) => request.pipe(response);
  const { manager, port, seen } = await machine(t, { options: none, handler: echo });
  const agent = new Agent({ keepAlive: true, maxSockets: 1, rejoin: { manager } });
  for (let times = 0; times < 3; times += 1) {
    const { body } = await ask({ host: 'localhost', port, agent, method: 'POST' }, BIG);
    assert.ok(body.equals(BIG));
  }
  agent.destroy();
  assert.strictEqual(seen.connections, 1);
});

test('without a manager, or with one that is killed, connections are direct', { skip: NO_REJOIN }, async (t) => {
  const { ca, child, manager, port, seen } = await machine(t, { options: none });
  const trusting = { ca: ca.cert };
  assert.strictEqual((await get(port, { ...trusting, rejoin: { manager: '/nowhere/m.sock' } })).session, undefined);
  assert.ok((await get(port, { ...trusting, rejoin: { manager } })).session);
  child.kill('SIGKILL');
  await once(child, 'exit');
  const { body, session, socket } = await get(port, { ...trusting, rejoin: { manager } });
  assert.deepStrictEqual([String(body), session, socket.authorized], ['hello', undefined, true]);
  assert.strictEqual(seen.connections, 3);
  const refused = get(port, { ...trusting, rejoin: { manager, direct: false } });
  await assert.rejects(refused, (error) => error instanceof ManagerError && error.kind === 'not_running' && error.isTheManagers);
});

test('whoever else listens is told nothing', { skip: process.getuid() !== 0 && 'NOT TESTED: only root can' }, async (t) => {
  const socket = path.join(folder(t), 'm.sock');
  const impostor = new Share(socket, () => {});
  await impostor.start();
  t.after(() => impostor.stop());
  fs.chownSync(socket, 12_345, 12_345);
  await assert.rejects(connect('localhost', 1, { manager: socket }), /is not believed: user 12345/);
  assert.strictEqual(impostor.asked.length, 0);
});

test('a manager that is silent, or speaks nonsense, costs a moment', async (t) => {
  const pair = certify(t, ['localhost']);
  const port = await serve(t, https.createServer(pair, hello));
  const nonsense = ['\0\0\0\x02{}', '\xff\xff\xff\xff', '\0\0\0\x05nonse', '\0\0\0\x02[]', '\0\0\0\x0c{"rejoin":9}', ''];
  for (const [number, bytes] of nonsense.entries()) {
    const manager = path.join(folder(t), `${number}.sock`);
    const fake = new Share(manager, (fields, connection) => connection.end(bytes, 'latin1'));
    await fake.start();
    t.after(() => fake.stop());
    const { body } = await get(port, { ca: pair.cert, rejoin: { manager } });
    assert.strictEqual(String(body), 'hello');
  }
});

test('what the network says is an error at once; certificates are judged by Node', { skip: NO_REJOIN }, async (t) => {
  const made = await machine(t, { options: (ca) => ca.issue('other.test') });
  const rejoin = { manager: made.manager };
  await assert.rejects(get(1, { rejoin }), { kind: 'refused', code: 'ECONNREFUSED' });
  await assert.rejects(get(made.port, { rejoin }, { host: 'no.invalid' }), { kind: 'name_not_found', code: 'ENOTFOUND' });
  const isNodes = (code) => (error) => error.code === code && !(error instanceof ManagerError);
  await assert.rejects(get(made.port, { ca: made.ca.cert, rejoin }), isNodes('ERR_TLS_CERT_ALTNAME_INVALID'));
  const another = authority(t);
  await assert.rejects(get(made.port, { ca: another.cert, rejoin }), isNodes('UNABLE_TO_VERIFY_LEAF_SIGNATURE'));
  const strict = { ...rejoin, direct: false };
  await assert.rejects(get(made.port, { rejoin: strict }), { kind: 'certificate_wrong_name', code: 'ERR_TLS_CERT_ALTNAME_INVALID' });
  const pins = { pins: ['0'.repeat(64)] };
  await assert.rejects(get(made.port, { rejoin: { ...rejoin, trust: pins } }), { kind: 'certificate_pin_mismatch' });
  await assert.rejects(get(made.port, { rejoin: { manager: '/nowhere/m.sock', trust: pins } }), { kind: 'not_running' });
});

test('a certificate that is its own issuer is for Node to know', { skip: NO_REJOIN }, async (t) => {
  const pair = certify(t, ['localhost']);
  const { manager, port } = await machine(t, { options: none, pair });
  assert.strictEqual(String((await get(port, { ca: pair.cert, rejoin: { manager } })).body), 'hello');
  await assert.rejects(get(port, { rejoin: { manager } }), { code: 'DEPTH_ZERO_SELF_SIGNED_CERT' });
});

test('a client’s certificate goes along', { skip: NO_REJOIN }, async (t) => {
  const { ca, manager, port } = await machine(t, {
    options: (own) => ({ requestCert: true, ca: own.cert }),
    handler: (request, response) => response.end(request.socket.getPeerCertificate().subject.CN),
  });
  const identity = ca.issue('alice');
  for (const resumed of [false, true]) {
    const { body, session } = await get(port, { ...identity, rejoin: { manager } });
    assert.deepStrictEqual([String(body), session.resumed], ['alice', resumed]);
  }
});

test('what the manager cannot do as Node does is Node’s own', { skip: NO_REJOIN }, async (t) => {
  const { ca, manager, port } = await machine(t, { options: none });
  const cases = [
    { checkServerIdentity: () => undefined },
    { rejectUnauthorized: false },
    { ciphers: 'TLS_AES_256_GCM_SHA384' },
    { maxVersion: 'TLSv1.2' },
    { servername: 'localhost', host: '127.0.0.1' },
  ];
  for (const options of cases) {
    const { session } = await get(port, { ca: ca.cert, rejoin: { manager } }, options);
    assert.strictEqual(session, undefined, JSON.stringify(options));
  }
  const { session } = await get(port, { minVersion: 'TLSv1.3', rejoin: { manager } });
  assert.strictEqual(session.version, 'TLSv1.3');
});

test('what the process allows of TLS is allowed, and nothing else', { skip: NO_REJOIN }, async (t) => {
  const { ca, manager, port } = await machine(t, { options: none });
  const old = await serve(t, https.createServer({ ...ca.issue('localhost'), maxVersion: 'TLSv1.2' }, hello));
  const options = { ca: ca.cert, rejoin: { manager } };
  const cases = [
    // Node makes this connection, or refuses it: the manager does neither.
    { DEFAULT_CIPHERS: 'TLS_AES_256_GCM_SHA384' },
    { DEFAULT_ECDH_CURVE: 'P-384' },
    { DEFAULT_MAX_VERSION: 'TLSv1.2' },
    { DEFAULT_MIN_VERSION: 'TLSv1.1' },
  ];
  const usual = { ...tls };
  const set = (changes) => {
    for (const [name, value] of Object.entries(changes)) tls[name] = value;
  };
  t.after(() => set(Object.fromEntries(cases.flatMap(Object.keys).map((name) => [name, usual[name]]))));
  for (const changes of cases) {
    set(changes);
    assert.strictEqual((await get(port, options)).session, undefined, JSON.stringify(changes));
    const strict = get(port, { ...options, rejoin: { manager, direct: false } });
    await assert.rejects(strict, { kind: 'bad_request' }, JSON.stringify(changes));
    for (const name of Object.keys(changes)) tls[name] = usual[name];
  }
  assert.strictEqual((await get(old, options)).session.version, 'TLSv1.2');
  tls.DEFAULT_MIN_VERSION = 'TLSv1.3';
  await assert.rejects(get(old, options), /alert protocol version/);
  assert.strictEqual((await get(port, options)).session.version, 'TLSv1.3');
  // An option goes before it, as in Node.
  assert.strictEqual((await get(old, { ...options, minVersion: 'TLSv1.2' })).session.version, 'TLSv1.2');
});

const NO_DEFAULT_CA = NO_REJOIN || (tls.setDefaultCACertificates ? false : 'from Node 22.19');

test('who trusts fewer authorities than Node decides by itself', { skip: NO_DEFAULT_CA }, async (t) => {
  const { ca, manager, port } = await machine(t, { options: none });
  const strict = { rejoin: { manager, direct: false } };
  const usual = tls.getCACertificates('default');
  t.after(() => tls.setDefaultCACertificates(usual));
  assert.ok((await get(port, strict)).session);
  tls.setDefaultCACertificates([ca.cert]);
  await assert.rejects(get(port, strict), { kind: 'bad_request' });
  const trust = { bundle: ca.cert };
  assert.ok((await get(port, { rejoin: { ...strict.rejoin, trust } })).session);
  const { body, session } = await get(port, { rejoin: { manager } });
  assert.deepStrictEqual([String(body), session], ['hello', undefined]);
  assert.ok((await get(port, { ca: ca.cert, ...strict })).session);
  tls.setDefaultCACertificates([...usual, ca.cert]);
  assert.ok((await get(port, strict)).session);
});

test('a server may be as slow as without the manager', { skip: NO_REJOIN }, async (t) => {
  const { ca, manager, server } = await machine(t, { options: none });
  // Handshakes begin so late, whoever makes the connection.
  const slow = async (afterMs) => {
    const begun = Date.now();
    const listener = net.createServer((tcp) => {
      tcp.on('error', () => {});
      setTimeout(() => server.emit('connection', tcp), begun + afterMs - Date.now());
    });
    await new Promise((resolve) => listener.listen(0, '127.0.0.1', resolve));
    t.after(() => listener.close());
    return listener.address().port;
  };
  const options = { ca: ca.cert, rejoin: { manager } };
  const [patient, timed, strict] = await Promise.all([slow(10_500), slow(1_000), slow(1_000)]);
  const asked = get(patient, options);
  const noOther = get(strict, { ...options, rejoin: { manager, direct: false } }, { timeout: 300 });
  const refused = assert.rejects(noOther, { kind: 'timeout', code: 'ETIMEDOUT' });
  const agent = new Agent(options);
  t.after(() => agent.destroy());
  const begun = Date.now();
  const request = https.get({ host: 'localhost', port: timed, agent, timeout: 300 });
  const told = once(request, 'timeout').then(() => Date.now() - begun);
  const [response] = await once(request, 'response');
  response.resume();
  assert.ok((await told) < 900, 'the request times out after 300 ms');
  await refused;
  assert.strictEqual(String((await asked).body), 'hello');
});

test('an agent’s timeout is that of its connections', { skip: NO_REJOIN }, async (t) => {
  const { manager, port } = await machine(t, { options: none, handler: () => {} });
  const agent = new Agent({ rejoin: { manager }, timeout: 300 });
  t.after(() => agent.destroy());
  const request = https.get({ host: 'localhost', port, agent });
  request.on('error', () => {});
  const [socket] = await once(request, 'socket');
  assert.ok(socket.session);
  await once(request, 'timeout');
  request.destroy();
});

test('an answer that breaks off is an error', { skip: NO_REJOIN }, async (t) => {
  for (const isCut of [true, false]) {
    let tcp;
    const { manager, port, server } = await machine(t, {
      options: none,
      handler({ socket }) {
        // Below TLS, so that the client is not told that this is all.
        const end = () => (isCut ? tcp.destroy() : socket.end());
        socket.write('HTTP/1.0 200 OK\r\n\r\nhalf', () => setTimeout(end, 50));
      },
    });
    server.on('connection', (made) => (tcp = made));
    const answer = get(port, { rejoin: { manager } });
    if (isCut) await assert.rejects(answer, { code: 'ECONNRESET' });
    else assert.strictEqual(String((await answer).body), 'half');
  }
});

test('Node’s fetch goes through the manager, too', { skip: NO_REJOIN }, async (t) => {
  const { ca, manager, port, seen } = await machine(t, { options: none });
  for (let times = 0; times < 3; times += 1) {
    const through = await dispatcher({ rejoin: { manager } });
    const answer = await fetch(`https://localhost:${port}/`, { dispatcher: through });
    assert.strictEqual(await answer.text(), 'hello');
    await through.close();
  }
  assert.deepStrictEqual(seen, { connections: 3, resumed: 2 });
  const direct = await dispatcher({ connect: { ca: ca.cert }, rejoin: { manager: '/nowhere/m.sock' } });
  assert.strictEqual(await (await fetch(`https://localhost:${port}/`, { dispatcher: direct })).text(), 'hello');
  await direct.close();
  const strict = await dispatcher({ rejoin: { manager: '/nowhere/m.sock', direct: false } });
  await assert.rejects(fetch(`https://localhost:${port}/`, { dispatcher: strict }), (error) => error.cause.kind === 'not_running');
  await strict.close();
  assert.strictEqual(typeof connector({}), 'function');
});

test('a request that is given up leaves the manager', { skip: NO_REJOIN }, async (t) => {
  const { manager, port } = await machine(t, { options: none, handler: () => {} });
  const agent = new Agent({ rejoin: { manager } });
  const request = https.request({ host: 'localhost', port, agent });
  request.on('error', () => {}).end();
  const [socket] = await once(request, 'socket');
  assert.ok(socket.session);
  request.destroy();
  await once(socket, 'close');
  agent.destroy();
});
