// A server in a process of its own. Its argument is JSON: `kind`, options of the server, and `keys` or `sessions` of
// Rejoin. It prints its port when it serves, and has the keys that it is to have.
'use strict';

const cluster = require('node:cluster');
const http2 = require('node:http2');
const https = require('node:https');
const tls = require('node:tls');
const rejoin = require('rejoin-tls');

const { kind, options, keys, sessions, workers = 0 } = JSON.parse(process.argv[2]);

async function main() {
  if (workers > 0 && cluster.isPrimary) {
    const made = Array.from({ length: workers }, () => cluster.fork());
    process.on('disconnect', () => process.exit());
    const ports = await Promise.all(made.map((worker) => new Promise((resolve) => worker.once('message', resolve))));
    process.stdout.write(`${ports[0]}\n`);
    return;
  }
  const server = make();
  const kept = sessions && rejoin.sessions(server, sessions);
  const followed = keys && rejoin.ticketKeys(server, keys);
  await Promise.all([
    kept && new Promise((resolve) => kept.once('ready', resolve)),
    followed && new Promise((resolve) => followed.once('keys', resolve)),
  ]);
  server.listen(0, '127.0.0.1', () => {
    const { port } = server.address();
    if (cluster.isWorker) process.send(port);
    else process.stdout.write(`${port}\n`);
  });
}

function make() {
  if (kind === 'https') return https.createServer(options, (request, response) => response.end(String(process.pid)));
  if (kind === 'http2') {
    return http2.createSecureServer({ ...options, allowHTTP1: true }, (request, response) => response.end(String(process.pid)));
  }
  return tls.createServer(options, (socket) => socket.on('error', () => {}).end(String(process.pid)));
}

main();
// Its parent is gone.
if (!cluster.isWorker) process.stdin.resume().on('end', () => process.exit());
