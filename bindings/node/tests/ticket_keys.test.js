// Ticket keys of the share in real servers, and real clients that come back.
'use strict';

const assert = require('node:assert');
const crypto = require('node:crypto');
const fs = require('node:fs');
const path = require('node:path');
const tls = require('node:tls');
const test = require('node:test');
const { ticketKeys } = require('rejoin-tls');
const machine = require('./support/machine.js');
const { certify, daemon, folder, keyShare, once, rejoin, send, serve, serveElsewhere, until, visit } = machine;

const VERSIONS = ['TLSv1.2', 'TLSv1.3'];
const PSK = 'PSK+AESGCM:TLS_AES_128_GCM_SHA256';
const PSK_CLIENT = { checkServerIdentity: () => undefined };
const CONTEXT = 'node-test';

function key() {
  return crypto.randomBytes(48).toString('base64');
}

function list(encrypting, ...others) {
  const keys = [{ key: encrypting, state: 'encrypting' }, ...others.map((one) => ({ key: one, state: 'opening' }))];
  return { keys, ticket_lifetime_s: 86_400, changes_in_s: 3_540 };
}

/** A server here with keys of the share, when it has them. */
async function keyed(t, options, rejoinOptions) {
  const server = tls.createServer({ sessionIdContext: 'test', ...options });
  const keys = ticketKeys(server, { context: CONTEXT, retryMs: 20, ...rejoinOptions });
  t.after(() => keys.close());
  if (keys.status.refused === undefined) await once(keys, 'keys');
  return { server, keys, port: await serve(t, server) };
}

/** The clients' side of a pair of visits: whether the second, at `second`, resumes what the first gave. */
async function resumes(first, second, options) {
  const { session } = await visit(first, options);
  assert.ok(session, 'the server gives a session');
  return (await visit(second, { ...options, session })).resumed;
}

for (const kind of ['tls', 'https', 'http2']) {
  for (const version of VERSIONS) {
    test(`two processes of ${kind} resume each other's sessions over ${version}`, async (t) => {
      const socket = path.join(folder(t), 's.sock');
      await keyShare(t, socket, list(key()));
      const pair = certify(t, ['localhost']);
      const settings = { kind, options: { ...pair, sessionIdContext: 'test' }, keys: { context: CONTEXT, socket } };
      const request = kind === 'tls' ? undefined : 'GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n';
      const ports = [];
      for (const _ of [0, 1]) ports.push((await serveElsewhere(t, settings)).port);
      const alone = await serveElsewhere(t, { ...settings, keys: undefined });
      const options = { ca: pair.cert, minVersion: version, maxVersion: version };
      const go = async (first, second) => {
        const { session } = await asked(first, options, request);
        return (await asked(second, { ...options, session }, request)).resumed;
      };
      assert.strictEqual(await go(ports[0], ports[1]), true);
      assert.strictEqual(await go(ports[1], ports[0]), true);
      assert.strictEqual(await go(ports[0], alone.port), false, 'a server without Rejoin cannot');
    });
  }
}

function asked(port, options, request) {
  if (request === undefined) return visit(port, options);
  return new Promise((resolve, reject) => {
    const client = tls.connect({ port, host: '127.0.0.1', servername: 'localhost', ...options }, () => {
      resumed = client.isSessionReused();
      client.write(request);
    });
    let resumed;
    let session;
    client.on('session', (made) => (session = made));
    client.on('error', reject).resume();
    client.on('end', () => client.end());
    client.on('close', () => resolve({ resumed, session }));
  });
}

test('workers of a cluster resume each other’s sessions', async (t) => {
  const socket = path.join(folder(t), 's.sock');
  await keyShare(t, socket, list(key()));
  const pair = certify(t, ['localhost']);
  const settings = { kind: 'tls', workers: 2, options: { ...pair, sessionIdContext: 'test' }, keys: { context: CONTEXT, socket } };
  const { port } = await serveElsewhere(t, settings);
  const options = { ca: pair.cert };
  const workers = new Set();
  let { session, said } = await visit(port, options);
  workers.add(said);
  for (let times = 0; times < 10; times += 1) {
    const again = await visit(port, { ...options, session });
    assert.strictEqual(again.resumed, true);
    ({ session } = again);
    workers.add(again.said);
  }
  assert.strictEqual(workers.size, 2, 'both workers had a turn');
});

for (const version of VERSIONS) {
  test(`a rotation loses nobody over ${version}; with one key it loses everybody`, async (t) => {
    const socket = path.join(folder(t), 's.sock');
    const keys = [key(), key()];
    const share = await keyShare(t, socket, list(keys[0]));
    const pair = certify(t, ['localhost']);
    const options = { ca: pair.cert, minVersion: version, maxVersion: version };
    for (const several of [true, false]) {
      share.list = list(keys[0]);
      const server = await keyed(t, pair, { socket, several });
      assert.strictEqual(server.keys.status.several, several);
      const clients = [];
      for (let number = 0; number < 20; number += 1) clients.push((await visit(server.port, options)).session);
      const changed = once(server.keys, 'keys');
      share.turn(list(keys[1], keys[0]));
      await changed;
      let resumed = 0;
      for (const session of clients) {
        const { resumed: did, session: renewed } = await visit(server.port, { ...options, session });
        resumed += did;
        assert.ok(renewed, 'a client always leaves with a ticket of the new key');
        assert.strictEqual((await visit(server.port, { ...options, session: renewed })).resumed, true);
      }
      assert.strictEqual(resumed, several ? 20 : 0);
      t.diagnostic(`${several ? 'several keys' : 'one key'}: ${resumed} of 20 tickets of the old key resume`);
      server.keys.close();
    }
  });
}

test('a ticket under a key that is not in the list is refused, and the handshake goes on', async (t) => {
  const socket = path.join(folder(t), 's.sock');
  const share = await keyShare(t, socket, list(key()));
  const pair = certify(t, ['localhost']);
  const { port, keys } = await keyed(t, pair, { socket });
  const { session } = await visit(port, { ca: pair.cert });
  const changed = once(keys, 'keys');
  share.turn(list(key()));
  await changed;
  assert.strictEqual((await visit(port, { ca: pair.cert, session })).resumed, false);
});

test('each connection brings a ticket, but to clients with a certificate the first handshake alone does', async (t) => {
  const socket = path.join(folder(t), 's.sock');
  await keyShare(t, socket, list(key()));
  const pair = certify(t, ['localhost']);
  for (const asks of [false, true]) {
    const { port } = await keyed(t, { ...pair, requestCert: asks, ca: pair.cert }, { socket });
    const client = { ca: pair.cert, ...pair };
    const { session } = await visit(port, client);
    const again = await visit(port, { ...client, session });
    assert.deepStrictEqual([again.resumed, again.session !== undefined], [true, !asks]);
  }
});

test('upcoming keys open', async (t) => {
  const socket = path.join(folder(t), 's.sock');
  const keys = [key(), key()];
  const share = await keyShare(t, socket, list(keys[1], keys[0]));
  const pair = certify(t, ['localhost']);
  const ahead = await keyed(t, pair, { socket });
  share.list = { ...list(keys[0]), keys: [{ key: keys[0], state: 'encrypting' }, { key: keys[1], state: 'upcoming' }] };
  const behind = await keyed(t, pair, { socket });
  assert.strictEqual(await resumes(ahead.port, behind.port, { ca: pair.cert }), true);
  assert.strictEqual(await resumes(behind.port, ahead.port, { ca: pair.cert }), true);
});

test('without a share a server serves as without Rejoin, and takes the keys when there is one', async (t) => {
  const socket = path.join(folder(t), 's.sock');
  const pair = certify(t, ['localhost']);
  const server = tls.createServer({ ...pair, sessionIdContext: 'test' });
  const keys = ticketKeys(server, { context: CONTEXT, socket, retryMs: 20 });
  t.after(() => keys.close());
  await once(keys, 'down');
  const port = await serve(t, server);
  const { session } = await visit(port, { ca: pair.cert });
  assert.strictEqual((await visit(port, { ca: pair.cert, session })).resumed, true);
  const share = await keyShare(t, socket, list(key()));
  await once(keys, 'keys');
  const before = await visit(port, { ca: pair.cert, session });
  assert.strictEqual(before.resumed, true, 'tickets from before open, too');
  await share.stop();
  await until(() => !keys.status.following, 'the share is gone');
  assert.strictEqual((await visit(port, { ca: pair.cert, session: before.session })).resumed, true, 'the last list stays');
  const restarted = await keyShare(t, socket, list(key()));
  await until(() => keys.status.following, 'the share is back');
  await restarted.stop();
});

test('what a bad share sends changes nothing', async (t) => {
  const socket = path.join(folder(t), 's.sock');
  const good = list(key());
  const share = await keyShare(t, socket, good);
  const pair = certify(t, ['localhost']);
  const { port, keys } = await keyed(t, pair, { socket });
  let { session } = await visit(port, { ca: pair.cert });
  const bad = [
    { keys: [] },
    { keys: 'none' },
    { keys: [null] },
    { keys: [{ key: 'short', state: 'encrypting' }] },
    { keys: [{ key: Buffer.alloc(80).toString('base64'), state: 'encrypting' }] },
    { keys: [{ key: key(), state: 'opening' }] },
    { keys: Array.from({ length: 17 }, () => ({ key: key(), state: 'encrypting' })) },
    { rejoin: 2, ...good },
    { rejoin: 1, error: { kind: 'no_keys', message: 'later' } },
    ['a list'],
    { long: 'x'.repeat(300 * 1024) },
  ];
  for (const one of bad) {
    await until(() => keys.status.following && share.followers.size > 0, 'the share is followed');
    const down = once(keys, 'down');
    for (const connection of share.followers) send(connection, one);
    share.followers.clear();
    await down;
    const again = await visit(port, { ca: pair.cert, session });
    assert.strictEqual(again.resumed, true, JSON.stringify(one).slice(0, 80));
    ({ session } = again);
  }
});

test('whoever else listens is not asked', { skip: process.getuid() !== 0 && 'NOT TESTED: only root can' }, async (t) => {
  const made = folder(t);
  const pair = certify(t, ['localhost']);
  const cases = [
    (socket) => fs.chownSync(socket, 12_345, 12_345),
    (socket) => fs.chmodSync(path.dirname(socket), 0o777),
    (socket) => fs.chownSync(path.dirname(socket), 12_345, 12_345),
  ];
  for (const [number, spoil] of cases.entries()) {
    const socket = path.join(made, String(number), 's.sock');
    fs.mkdirSync(path.dirname(socket));
    const share = await keyShare(t, socket, list(key()));
    spoil(socket);
    const keys = ticketKeys(tls.createServer(pair), { context: CONTEXT, socket });
    const [error] = await once(keys, 'down');
    assert.match(error.message, /is not believed: (user 12345|other users)/);
    assert.strictEqual(share.asked.length, 0);
    keys.close();
    if (number !== 0) continue;
    const named = ticketKeys(tls.createServer(pair), { context: CONTEXT, socket, user: 12_345 });
    await once(named, 'keys');
    named.close();
  }
});

// Over TLS 1.3 the releases 18, 20 and 22 of Node call a client without a certificate authorized when it resumes.
test('servers that ask different things of clients open nothing of each other', async (t) => {
  const socket = path.join(folder(t), 's.sock');
  const raw = key();
  const share = await keyShare(t, socket, list(raw));
  // Keys by context, as the share has them.
  const byContext = new Map();
  share.answer = (fields, connection) => {
    const { context, form } = fields.keys;
    assert.strictEqual(form, 'raw48');
    if (!byContext.has(context)) byContext.set(context, list(key()));
    send(connection, { rejoin: 1, ...byContext.get(context) });
  };
  const pair = certify(t, ['localhost']);
  const [alice, bob] = [certify(t, ['alice']), certify(t, ['bob'])];
  const asks = (ca) => ({ requestCert: true, rejectUnauthorized: true, ca });
  const open = await keyed(t, pair, { socket });
  const closed = await keyed(t, { ...pair, ...asks(alice.cert) }, { socket });
  const same = await keyed(t, { ...pair, ...asks([Buffer.from(`${alice.cert}\n`)]) }, { socket });
  const other = await keyed(t, { ...pair, ...asks(bob.cert) }, { socket });
  for (const version of VERSIONS) {
    const options = { ca: pair.cert, minVersion: version, maxVersion: version };
    const with_ = { ...options, ...alice };
    assert.strictEqual(await resumes(closed.port, same.port, with_), true);
    assert.strictEqual(await resumes(open.port, open.port, options), true);
    const { session } = await visit(open.port, options);
    await assert.rejects(visit(closed.port, { ...options, session }), 'a client without a certificate is refused');
    const { session: hers } = await visit(closed.port, with_);
    const refused = await visit(other.port, { ...with_, session: hers }).then((came) => came.said, () => '');
    assert.strictEqual(refused, '', 'her authority is not known there');
    // Node alone, with the same keys in both servers: this is what the contexts are for.
    const ticketKeys_ = Buffer.from(raw, 'base64');
    const trusting = await serve(t, tls.createServer({ ...pair, sessionIdContext: 'x', ticketKeys: ticketKeys_ }));
    const asking = await serve(t, tls.createServer({ ...pair, ...asks(alice.cert), sessionIdContext: 'x', ticketKeys: ticketKeys_ }));
    const stray = await visit(trusting, options);
    const came = await visit(asking, { ...options, session: stray.session }).then((seen) => seen.said, () => '');
    t.diagnostic(`Node alone with one key, ${version}: a client without a certificate gets ${came || 'nothing'}`);
  }
});

// Nobody looks at the key again when a client resumes.
for (const version of VERSIONS) {
  test(`a client that has the key of one server gets nothing at another over ${version}`, async (t) => {
    const socket = path.join(folder(t), 's.sock');
    await keyShare(t, socket, list(key()));
    const knows = (name, byte) => (_, identity) => (identity === name ? Buffer.alloc(32, byte) : null);
    const [alice, bob] = [knows('alice', 1), knows('bob', 2)];
    const asks = { ciphers: PSK, minVersion: version, maxVersion: version };
    const first = await keyed(t, { ...asks, pskCallback: alice }, { socket });
    const second = await keyed(t, { ...asks, pskCallback: bob }, { socket });
    const client = { ...asks, ...PSK_CLIENT, pskCallback: () => ({ psk: Buffer.alloc(32, 1), identity: 'alice' }) };
    const { session } = await visit(first.port, client);
    assert.ok(session, 'the first server gives a session');
    await assert.rejects(visit(second.port, client), 'her key is not known there');
    await assert.rejects(visit(second.port, { ...client, session }), 'nor with a session');
    for (const { keys } of [first, second]) assert.match(keys.status.refused, /pskCallback/);
  });
}

test('a server shares nothing in a Node that does not show whether keys authenticate clients', (t) => {
  const server = tls.createServer(certify(t, ['localhost']));
  delete server[Object.getOwnPropertySymbols(server).find((one) => one.description === 'pskcallback')];
  const keys = ticketKeys(server, { context: CONTEXT, socket: '/nowhere/s.sock' });
  t.after(() => keys.close());
  assert.match(keys.status.refused, /does not show/);
});

test('servers with other names, ciphers or versions have other keys', async (t) => {
  const socket = path.join(folder(t), 's.sock');
  const share = await keyShare(t, socket, list(key()));
  const contexts = async (...options) => {
    const seen = [];
    for (const one of options) {
      await keyed(t, one, { socket });
      seen.push(share.asked.at(-1).keys.context);
    }
    return new Set(seen).size;
  };
  const [first, renewed, other] = [certify(t, ['a.test', 'b.test']), certify(t, ['b.test', 'a.test']), certify(t, ['b.test'])];
  assert.strictEqual(await contexts(first, renewed), 1);
  assert.strictEqual(await contexts(first, other), 2);
  assert.strictEqual(await contexts(first, { ...first, ciphers: 'ECDHE-ECDSA-AES128-GCM-SHA256' }), 2);
  assert.strictEqual(await contexts(first, { ...first, minVersion: 'TLSv1.3' }), 2);
});

test('a server whose demands cannot be seen shares nothing, says so, and serves', async (t) => {
  const pair = certify(t, ['localhost']);
  const asks = { ...pair, requestCert: true, ca: pair.cert };
  const warnings = [];
  const note = (warning) => warning.code === 'REJOIN_NOT_SHARED' && warnings.push(warning.message);
  process.on('warning', note);
  t.after(() => process.off('warning', note));
  const cases = [
    [{ ...asks, rejectUnauthorized: false }, /rejectUnauthorized/],
    [{ ...asks, ca: undefined }, /set `ca`/],
    [{ ...asks, SNICallback: (name, done) => done(null) }, /SNICallback/],
  ];
  for (const [options, why] of cases) {
    const { keys, port } = await keyed(t, options, { socket: '/nowhere/s.sock' });
    assert.match(keys.status.refused, why);
    await visit(port, { ca: pair.cert, ...pair }).catch((error) => {
      // Its own authorities do not know the client.
      assert.strictEqual(options.ca, undefined, error);
    });
  }
  await new Promise(setImmediate);
  assert.strictEqual(warnings.length, cases.length);
});

test('a context that is added later ends the sharing of client certificates', async (t) => {
  const socket = path.join(folder(t), 's.sock');
  await keyShare(t, socket, list(key()));
  const pair = certify(t, ['localhost']);
  const asks = { ...pair, requestCert: true, ca: pair.cert };
  const [first, second] = [await keyed(t, asks, { socket }), await keyed(t, asks, { socket })];
  const client = { ca: pair.cert, ...pair };
  assert.strictEqual(await resumes(first.port, second.port, client), true);
  const { session } = await visit(first.port, client);
  first.server.addContext('other.test', pair);
  assert.strictEqual(first.keys.status.following, false);
  assert.strictEqual((await visit(first.port, { ...client, session })).resumed, false);
  assert.strictEqual(await resumes(first.port, second.port, client), false);
  assert.strictEqual(await resumes(first.port, first.port, client), true, 'as without Rejoin');
});

test('a renewed certificate keeps the tickets; other authorities of clients end them', async (t) => {
  const socket = path.join(folder(t), 's.sock');
  const byContext = new Map();
  const share = await keyShare(t, socket, list(key()));
  share.answer = (fields, connection) => {
    const { context } = fields.keys;
    if (!byContext.has(context)) byContext.set(context, list(key()));
    send(connection, { rejoin: 1, ...byContext.get(context) });
  };
  const [pair, renewed, alice] = [certify(t, ['localhost']), certify(t, ['localhost']), certify(t, ['alice'])];
  const asks = (ca) => ({ sessionIdContext: 'test', requestCert: true, ca });
  const { server, keys, port } = await keyed(t, { ...pair, ...asks([alice.cert]) }, { socket });
  const client = { ...alice, ca: [pair.cert, renewed.cert] };
  const { session } = await visit(port, client);
  server.setSecureContext({ ...renewed, ...asks([alice.cert]) });
  const again = await visit(port, { ...client, session });
  assert.strictEqual(again.resumed, true);
  const changed = once(keys, 'keys');
  server.setSecureContext({ ...renewed, ...asks([alice.cert, pair.cert]) });
  await changed;
  assert.strictEqual((await visit(port, { ...client, session: again.session })).resumed, false);
  assert.strictEqual(await resumes(port, port, client), true);
});

test('a server that is closed and listens again is of the ring again', async (t) => {
  const socket = path.join(folder(t), 's.sock');
  const share = await keyShare(t, socket, list(key()));
  const pair = certify(t, ['localhost']);
  const [one, two] = [await keyed(t, pair, { socket }), await keyed(t, pair, { socket })];
  const listen = async () => {
    await new Promise((resolve) => one.server.listen(0, '127.0.0.1', resolve));
    return one.server.address().port;
  };
  for (let times = 0; times < 2; times += 1) {
    await new Promise((resolve) => one.server.close(resolve));
    await until(() => share.followers.size === 1, 'a closed server follows nothing');
    assert.strictEqual(one.keys.status.following, false);
    share.turn(list(key()));
    const again = once(one.keys, 'keys');
    const port = await listen();
    await again;
    assert.strictEqual(one.keys.status.following, true);
    for (const version of VERSIONS) {
      const options = { ca: pair.cert, minVersion: version, maxVersion: version };
      assert.strictEqual(await resumes(port, two.port, options), true);
      assert.strictEqual(await resumes(two.port, port, options), true);
    }
  }
  // What the program closes itself stays closed.
  one.keys.close();
  await new Promise((resolve) => one.server.close(resolve));
  await listen();
  assert.strictEqual(one.keys.status.following, false);
  await until(() => share.followers.size === 1, 'it follows nothing');
});

test('the arguments are checked', (t) => {
  const pair = certify(t, ['localhost']);
  const server = tls.createServer(pair);
  assert.throws(() => ticketKeys(require('node:http').createServer(), { context: 'x' }), /a server of tls/);
  assert.throws(() => ticketKeys(server, {}), /context/);
  assert.throws(() => ticketKeys(server, { context: '' }), /context/);
  assert.throws(() => ticketKeys(server, { context: 'x'.repeat(256) }), /context/);
});

test('the real share: two servers, rotations under way, a restart', { skip: machine.NO_REJOIN }, async (t) => {
  const made = folder(t);
  const socket = path.join(made, 's.sock');
  const command = ['share', 'node', '--socket', socket, '--folder', made, '--capacity', '1MiB'];
  let share = await daemon(t, command, socket);
  const pair = certify(t, ['localhost']);
  const [first, second] = [await keyed(t, pair, { socket }), await keyed(t, pair, { socket })];
  let { session } = await visit(first.port, { ca: pair.cert });
  const visits = { made: 0, resumed: 0 };
  for (let turn = 0; turn < 5; turn += 1) {
    const changed = Promise.all([once(first.keys, 'keys'), once(second.keys, 'keys')]);
    rejoin('keys', 'rotate', 'node', '--folder', made);
    await changed;
    for (const { port } of [second, first]) {
      const again = await visit(port, { ca: pair.cert, session });
      visits.made += 1;
      visits.resumed += again.resumed;
      ({ session } = again);
    }
  }
  assert.deepStrictEqual(visits, { made: 10, resumed: 10 });
  const gone = [once(first.keys, 'down'), once(second.keys, 'down')];
  share.kill('SIGKILL');
  await Promise.all(gone);
  const without = await visit(second.port, { ca: pair.cert, session });
  assert.strictEqual(without.resumed, true);
  const back = [once(first.keys, 'keys'), once(second.keys, 'keys')];
  share = await daemon(t, command, socket);
  await Promise.all(back);
  assert.strictEqual((await visit(first.port, { ca: pair.cert, session: without.session })).resumed, true);
});
