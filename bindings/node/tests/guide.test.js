// The programs in docs/node.md, as they stand there.
'use strict';

const assert = require('node:assert');
const fs = require('node:fs');
const net = require('node:net');
const path = require('node:path');
const { spawn } = require('node:child_process');
const test = require('node:test');
const { connect } = require('rejoin-tls');
const { NO_REJOIN, authority, daemon, folder, listens, once, until, visit } = require('./support/machine.js');

const GUIDE = path.join(__dirname, '../../../docs/node.md');
const NO_GUIDE = !fs.existsSync(GUIDE) && 'NOT TESTED: the guide is not in the package';

function programs() {
  return [...fs.readFileSync(GUIDE, 'utf8').matchAll(/```js\n(.*?)```/gs)].map(([, text]) => text);
}

/** Runs a program of the guide with these names; its output when it has ended. */
function run(t, made, text, names) {
  const modules = path.join(made, 'node_modules');
  fs.mkdirSync(modules, { recursive: true });
  if (!fs.existsSync(path.join(modules, 'rejoin-tls'))) fs.symlinkSync(path.join(__dirname, '..'), path.join(modules, 'rejoin-tls'));
  const file = path.join(made, `program-${names.port}-${text.length}.js`);
  const given = Object.entries(names).map(([name, value]) => `const ${name} = ${JSON.stringify(value)};\n`);
  fs.writeFileSync(file, given.join('') + text);
  const child = spawn(process.execPath, [file], { stdio: ['ignore', 'pipe', 'inherit'] });
  t.after(() => child.kill());
  return child;
}

async function freePort() {
  const probe = net.createServer().listen(0, '127.0.0.1');
  await once(probe, 'listening');
  const { port } = probe.address();
  await new Promise((resolve) => probe.close(resolve));
  return port;
}

async function output(child) {
  let told = '';
  child.stdout.on('data', (piece) => (told += piece));
  const [code] = await once(child, 'exit');
  assert.strictEqual(code, 0);
  return told;
}

test('the servers and clients of the guide resume', { skip: NO_REJOIN || NO_GUIDE }, async (t) => {
  const [keyed, stateful, agent, fetching, ...more] = programs();
  assert.deepStrictEqual(more, []);
  const made = folder(t);
  const ca = authority(t);
  const pair = ca.issue('localhost');
  const [socket, manager] = [path.join(made, 's.sock'), path.join(made, 'm.sock')];
  fs.writeFileSync(path.join(made, 'manager.toml'), `system_bundle = ${JSON.stringify(ca.file)}\n`);
  await daemon(t, ['share', 'guide', '--socket', socket, '--folder', made, '--capacity', '1MiB'], socket);
  await daemon(t, ['manager', '--socket', manager, '--settings', path.join(made, 'manager.toml')], manager);
  const request = 'GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n';
  const get = (port, session) => visit(port, { ca: ca.cert, session, request });
  for (const text of [keyed, stateful]) {
    const ports = [await freePort(), await freePort()];
    for (const port of ports) {
      run(t, made, text, { ...pair, socket, port });
      await until(() => listens({ port, host: '127.0.0.1' }), 'the server of the guide serves');
    }
    // The servers do not wait for the share.
    await until(async () => {
      const { session } = await get(ports[0]);
      return (await get(ports[1], session)).resumed;
    }, 'the second server resumes a session of the first');
    if (text === stateful) continue;
    const first = await connect('localhost', ports[0], { manager });
    first.end(request);
    for await (const _ of first);
    assert.match(await output(run(t, made, agent, { port: ports[0], manager })), /^true\nhello\n$/);
    assert.strictEqual(await output(run(t, made, fetching, { port: ports[1], manager })), 'hello\n');
  }
});
