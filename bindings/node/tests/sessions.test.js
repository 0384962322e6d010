// Sessions of real servers in a share, for TLS 1.2 without tickets; and what Node's interface does over TLS 1.3.
'use strict';

const assert = require('node:assert');
const { constants } = require('node:crypto');
const http2 = require('node:http2');
const https = require('node:https');
const path = require('node:path');
const tls = require('node:tls');
const test = require('node:test');
const { sessions } = require('rejoin-tls');
const { described } = require('../lib/session_der.js');
const machine = require('./support/machine.js');
const { Share, certify, daemon, folder, once, send, serve, serveElsewhere, sessionShare, until, visit } = machine;

const CONTEXT = 'node-test';
const STATEFUL = { sessionIdContext: 'test', maxVersion: 'TLSv1.2', secureOptions: constants.SSL_OP_NO_TICKET };

async function kept(t, options, rejoinOptions) {
  const server = tls.createServer({ ...STATEFUL, ...options });
  const sessions_ = sessions(server, { context: CONTEXT, retryMs: 20, deadlineMs: 2_000, ...rejoinOptions });
  t.after(() => sessions_.close());
  if (sessions_.status.refused === undefined) await once(sessions_, 'ready');
  return { server, sessions: sessions_, port: await serve(t, server) };
}

for (const kind of ['tls', 'https', 'http2']) {
  test(`two processes of ${kind} resume each other's sessions`, async (t) => {
    const socket = path.join(folder(t), 's.sock');
    await sessionShare(t, socket);
    const pair = certify(t, ['localhost']);
    const settings = { kind, options: { ...pair, ...STATEFUL }, sessions: { context: CONTEXT, socket, deadlineMs: 2_000 } };
    const ports = [];
    for (const _ of [0, 1]) ports.push((await serveElsewhere(t, settings)).port);
    const { session } = await greeted(ports[0], { ca: pair.cert });
    // The first server did not wait until the share had stored it.
    await until(async () => (await greeted(ports[1], { ca: pair.cert, session })).resumed, 'the second process resumes');
    assert.strictEqual((await greeted(ports[0], { ca: pair.cert, session })).resumed, true);
  });
}

function greeted(port, options) {
  return new Promise((resolve, reject) => {
    const client = tls.connect({ port, host: '127.0.0.1', servername: 'localhost', ...options }, () => {
      resolve({ resumed: client.isSessionReused(), session: client.getSession() });
      client.destroy();
    });
    client.on('error', reject);
  });
}

test('a slow share, a dead one and a lying one cost the session, and no handshake', async (t) => {
  const socket = path.join(folder(t), 's.sock');
  const share = await sessionShare(t, socket);
  const pair = certify(t, ['localhost']);
  const server = await kept(t, pair, { socket, deadlineMs: 1_000 });
  const { session } = await visit(server.port, { ca: pair.cert });
  const again = () => visit(server.port, { ca: pair.cert, session });
  const honest = share.answer;
  let found;
  const later = [];
  await until(async () => (await again()).resumed, 'it resumes');
  share.answer = (fields, connection) => {
    if (fields.get !== undefined) found = () => honest(fields, connection);
    // In order: what is stored is answered after what was asked for.
    else later.push(() => honest(fields, connection));
  };
  assert.strictEqual((await again()).resumed, false, 'the handshake did not wait');
  assert.ok(server.sessions.status.late > 0);
  // The late answer is that of its own question.
  share.answer = honest;
  for (const answer of [found, ...later]) answer();
  await until(async () => (await again()).resumed, 'it resumes again');
  const own = [...share.kept].find(([name]) => name.endsWith(described(session).id.toString('base64')))[1];
  const lies = ['none', null, 7, 'AAAA', Buffer.alloc(5000, 0x30).toString('base64'), ...share.kept.values()];
  for (const lie of lies) {
    share.answer = (fields, connection) => {
      if (fields.sessions) honest(fields, connection);
      else if (fields.get !== undefined) send(connection, { session: lie });
      else send(connection, { stored: true });
    };
    const { resumed } = await again();
    assert.strictEqual(resumed, lie === own);
  }
  const other = await visit(server.port, { ca: pair.cert });
  assert.ok(other.session);
  assert.strictEqual((await visit(server.port, { ca: pair.cert, session: other.session })).resumed, false, 'another id');
  const down = once(server.sessions, 'down');
  await share.stop();
  await down;
  assert.strictEqual((await again()).resumed, false);
});

test('answers that were not asked for, and too many questions, end nothing', async (t) => {
  const socket = path.join(folder(t), 's.sock');
  let greeting = (connection) => send(connection, { rejoin: 1, sessions: {} });
  const share = new Share(socket, (fields, connection) => greeting(connection));
  await share.start();
  t.after(() => share.stop());
  const pair = certify(t, ['localhost']);
  const server = tls.createServer({ ...STATEFUL, ...pair });
  const kept_ = sessions(server, { context: CONTEXT, socket, retryMs: 20, deadlineMs: 20 });
  t.after(() => kept_.close());
  const port = await serve(t, server);
  assert.match((await once(kept_, 'down'))[0].message, /does not say what it takes/);
  greeting = (connection) => {
    send(connection, { rejoin: 1, sessions: { longest_session: 16_376 } });
    send(connection, { session: null });
  };
  await until(async () => /was not asked/.test((await once(kept_, 'down'))[0].message), 'it is dropped');
  // From here on it answers nothing.
  greeting = (connection) => send(connection, { rejoin: 1, sessions: { longest_session: 16_376 } });
  await once(kept_, 'ready');
  greeting = () => {};
  const { session } = await visit(port, { ca: pair.cert });
  const visits = Array.from({ length: 300 }, () => visit(port, { ca: pair.cert, session }));
  for (const { said } of await Promise.all(visits)) assert.ok(said);
  assert.ok(share.asked.length < 600, 'what waits is bounded');
});

// Each of its clients does a full handshake every time, which the share's figures must show.
test('a session that is longer than the share takes is sent, because the share counts it', async (t) => {
  const socket = path.join(folder(t), 's.sock');
  const share = await sessionShare(t, socket);
  const honest = share.answer;
  share.answer = (fields, connection) => {
    if (fields.sessions) send(connection, { rejoin: 1, sessions: { longest_session: 10 } });
    else if (fields.put !== undefined) send(connection, { stored: false });
    else honest(fields, connection);
  };
  const pair = certify(t, ['localhost']);
  const { sessions: kept_, port } = await kept(t, pair, { socket });
  await visit(port, { ca: pair.cert });
  await until(() => kept_.status.noRoom === 1, 'the share has refused it');
  assert.strictEqual(kept_.status.stored, 0);
});

test('servers that ask different things of clients find nothing of each other', async (t) => {
  const socket = path.join(folder(t), 's.sock');
  await sessionShare(t, socket);
  const [pair, alice, bob] = [certify(t, ['localhost']), certify(t, ['alice']), certify(t, ['bob'])];
  const open = await kept(t, pair, { socket });
  const first = await kept(t, { ...pair, requestCert: true, ca: alice.cert }, { socket });
  const same = await kept(t, { ...pair, requestCert: true, ca: alice.cert }, { socket });
  const both = await kept(t, { ...pair, requestCert: true, ca: [alice.cert, bob.cert] }, { socket });
  const { session } = await visit(first.port, { ca: pair.cert, ...alice });
  await until(() => first.sessions.status.stored === 1, 'it is stored');
  const again = await visit(same.port, { ca: pair.cert, ...alice, session });
  assert.deepStrictEqual([again.resumed, JSON.parse(again.said)], [true, { authorized: true, name: 'alice' }]);
  assert.strictEqual((await visit(both.port, { ca: pair.cert, ...alice, session })).resumed, false);
  const stray = await visit(open.port, { ca: pair.cert });
  await assert.rejects(visit(first.port, { ca: pair.cert, session: stray.session }));
});

// Nobody looks at the key again when a client resumes.
test('a client whose key was revoked gets in with no session from before a restart', async (t) => {
  const socket = path.join(folder(t), 's.sock');
  const share = await sessionShare(t, socket);
  const psk = Buffer.alloc(32, 1);
  const asks = { ciphers: 'PSK+AESGCM', minVersion: 'TLSv1.2', maxVersion: 'TLSv1.2' };
  const before = await kept(t, { ...asks, pskCallback: (_, identity) => (identity === 'alice' ? psk : null) }, { socket });
  const client = { ...asks, checkServerIdentity: () => undefined, pskCallback: () => ({ psk, identity: 'alice' }) };
  const { session } = await visit(before.port, client);
  assert.ok(session);
  before.sessions.close();
  const after = await kept(t, { ...asks, pskCallback: () => null }, { socket });
  await assert.rejects(visit(after.port, client), 'her key is not known any more');
  await assert.rejects(visit(after.port, { ...client, session }), 'nor with a session');
  for (const { status } of [before.sessions, after.sessions]) assert.match(status.refused, /pskCallback/);
  assert.strictEqual(share.kept.size, 0);
});

test('a server that asks something else later shares no sessions until it is started again', async (t) => {
  const socket = path.join(folder(t), 's.sock');
  await sessionShare(t, socket);
  const [pair, renewed] = [certify(t, ['localhost']), certify(t, ['localhost'])];
  const { server, sessions: kept_, port } = await kept(t, { ...pair, requestCert: true, ca: pair.cert }, { socket });
  const client = { ca: [pair.cert, renewed.cert], ...pair };
  const { session } = await visit(port, client);
  server.setSecureContext({ ...STATEFUL, ...renewed, ca: pair.cert });
  assert.strictEqual((await visit(port, { ...client, session })).resumed, true, 'a renewed certificate');
  for (const ca of [[pair.cert, renewed.cert], pair.cert]) {
    server.setSecureContext({ ...STATEFUL, ...renewed, ca });
    assert.match(kept_.status.refused, /start it again/);
    assert.strictEqual((await visit(port, { ...client, session })).resumed, false);
  }
});

test('an application says when a client comes back', async (t) => {
  const socket = path.join(folder(t), 's.sock');
  const share = await sessionShare(t, socket);
  const pair = certify(t, ['localhost']);
  const { server, sessions: kept_, port } = await kept(t, pair, { socket });
  const hinted = new Promise((resolve) => server.once('secureConnection', (socket_) => resolve(kept_.hint(socket_, 60))));
  await visit(port, { ca: pair.cert });
  assert.strictEqual(await hinted, true);
  assert.strictEqual(share.asked.find((fields) => fields.hint).hint.returns_in_s, 60);
});

// A handler's `request.socket` is the socket with https, and a proxy for it with http2.
for (const kind of ['https', 'http2', 'http/1.1 of http2']) {
  test(`a handler says when a client comes back, with ${kind}`, async (t) => {
    const socket = path.join(folder(t), 's.sock');
    const share = await sessionShare(t, socket);
    const pair = certify(t, ['localhost']);
    const options = { ...STATEFUL, ...pair, allowHTTP1: true };
    const server = kind === 'https' ? https.createServer(options) : http2.createSecureServer(options);
    const kept_ = sessions(server, { context: CONTEXT, socket, retryMs: 20, deadlineMs: 2_000 });
    t.after(() => kept_.close());
    const hinted = [];
    server.on('request', async (request, response) => {
      hinted.push(await kept_.hint(request.socket, 60));
      response.end();
      const { socket: late } = request;
      request.once('close', () => gone(kept_.hint(late, 60)));
    });
    let gone;
    const afterwards = new Promise((resolve) => (gone = resolve));
    await once(kept_, 'ready');
    const port = await serve(t, server);
    await (kind === 'http2' ? get2 : get1)(port, pair.cert);
    assert.deepStrictEqual(hinted, [true]);
    assert.strictEqual(typeof await afterwards, 'boolean', 'it throws at nobody');
    assert.strictEqual(await kept_.hint(undefined, 60), false);
    assert.strictEqual(share.asked.find((fields) => fields.hint).hint.returns_in_s, 60);
  });
}

async function get1(port, ca) {
  const request = https.get({ port, ca, host: '127.0.0.1', servername: 'localhost', agent: false });
  const [response] = await once(request, 'response');
  await once(response.resume(), 'end');
}

async function get2(port, ca) {
  const session = http2.connect(`https://127.0.0.1:${port}`, { ca, servername: 'localhost' });
  await once(session.request({ ':path': '/' }).resume(), 'end');
  session.close();
}

test('a server with listeners of its own is left alone', (t) => {
  const server = tls.createServer(certify(t, ['localhost']));
  server.on('resumeSession', (id, done) => done(null, null));
  assert.throws(() => sessions(server, { context: CONTEXT }), /two would answer/);
});

// Over TLS 1.3 the client's session is named in its pre_shared_key extension. Node asks for the id of the ClientHello,
// which is random there.
test('over TLS 1.3 Node asks for another id than the session has', async (t) => {
  const pair = certify(t, ['localhost']);
  const server = tls.createServer({ ...pair, secureOptions: constants.SSL_OP_NO_TICKET, minVersion: 'TLSv1.3' });
  const [made, wanted] = [new Map(), []];
  server.on('newSession', (id, session, done) => {
    made.set(id.toString('hex'), described(session).version);
    done();
  });
  server.on('resumeSession', (id, done) => {
    wanted.push(id.toString('hex'));
    done(null, null);
  });
  const port = await serve(t, server);
  const { session } = await visit(port, { ca: pair.cert });
  await visit(port, { ca: pair.cert, session });
  assert.ok(made.size >= 2);
  assert.deepStrictEqual([...new Set(made.values())], [0x0304]);
  assert.ok(wanted.length > 0);
  assert.deepStrictEqual(wanted.filter((id) => made.has(id)), []);
});

test('over TLS 1.3 nothing is stored, and the handshake goes on', async (t) => {
  const socket = path.join(folder(t), 's.sock');
  const share = await sessionShare(t, socket);
  const pair = certify(t, ['localhost']);
  const { port } = await kept(t, { ...pair, maxVersion: 'TLSv1.3' }, { socket });
  const { session } = await visit(port, { ca: pair.cert });
  assert.strictEqual((await visit(port, { ca: pair.cert, session })).resumed, false);
  assert.strictEqual(share.kept.size, 0);
});

test('what is not a session describes nothing', () => {
  const bytes = [undefined, Buffer.alloc(0), Buffer.from('3003020101', 'hex'), Buffer.alloc(100, 0xff), Buffer.from('30840101010101', 'hex')];
  for (const one of bytes) assert.deepStrictEqual(described(one), { version: 0, id: Buffer.alloc(0) });
});

test('the real share: found by another server, after a restart of the share, too', { skip: machine.NO_REJOIN }, async (t) => {
  const made = folder(t);
  const socket = path.join(made, 's.sock');
  const command = ['share', 'node', '--socket', socket, '--folder', made, '--capacity', '1MiB'];
  let share = await daemon(t, command, socket);
  const pair = certify(t, ['localhost']);
  const [first, second] = [await kept(t, pair, { socket }), await kept(t, pair, { socket })];
  const { session } = await visit(first.port, { ca: pair.cert });
  await until(() => first.sessions.status.stored === 1, 'it is stored');
  assert.strictEqual((await visit(second.port, { ca: pair.cert, session })).resumed, true);
  const down = [once(first.sessions, 'down'), once(second.sessions, 'down')];
  share.kill('SIGKILL');
  await Promise.all(down);
  assert.strictEqual((await visit(second.port, { ca: pair.cert, session })).resumed, false);
  const ready = [once(first.sessions, 'ready'), once(second.sessions, 'ready')];
  share = await daemon(t, command, socket);
  await Promise.all(ready);
  assert.strictEqual((await visit(second.port, { ca: pair.cert, session })).resumed, true);
  assert.ok(second.sessions.status.found >= 2);
});
