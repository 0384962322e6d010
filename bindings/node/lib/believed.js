// Whom to believe on a Unix socket. Node cannot ask the kernel who listens (SO_PEERCRED), so the files decide: who
// made the socket, and who could have put another in its place.
'use strict';

const fs = require('node:fs');
const net = require('node:net');
const path = require('node:path');

const WRITABLE_BY_OTHERS = 0o022;
const STICKY = 0o1000;

/**
 * A connection to the socket at `where`, made by this user, by root, or by one of `users` (numbers or names), in folders
 * to which nobody else may write. The file is looked at before and after connecting: in a sticky folder its owner
 * alone can have replaced it. Fails with an Error that names who is not believed.
 */
async function reach(where, users, waitMs) {
  const believed = numbers(users);
  const before = await check(where, believed);
  const connected = await connectTo(where, waitMs);
  try {
    const after = await check(where, believed);
    if (before.ino !== after.ino || before.dev !== after.dev) throw new Error(`${where} was replaced`);
  } catch (error) {
    connected.destroy();
    throw error;
  }
  return connected;
}

function connectTo(where, waitMs) {
  return new Promise((resolve, reject) => {
    const connected = net.connect({ path: where, allowHalfOpen: true });
    const timer = setTimeout(() => connected.destroy(new Error(`nobody accepts at ${where}`)), waitMs);
    const done = (then, value) => {
      clearTimeout(timer);
      connected.removeAllListeners('error');
      // Nobody may be listening yet when it breaks.
      connected.on('error', () => {});
      then(value);
    };
    connected.once('connect', () => done(resolve, connected));
    connected.once('error', (error) => done(reject, error));
  });
}

async function check(where, believed) {
  const folder = await fs.promises.realpath(path.dirname(path.resolve(where)));
  const file = path.join(folder, path.basename(where));
  const found = await fs.promises.lstat(file, { bigint: true });
  if (!found.isSocket()) throw new Error(`${file} is not a socket`);
  if (!believed.has(Number(found.uid))) throw distrust(file, `user ${found.uid} made it, and not this user or root`);
  for (let above = folder; ; above = path.dirname(above)) {
    const { uid, mode } = await fs.promises.stat(above);
    if (!believed.has(uid)) throw distrust(file, `user ${uid} owns ${above}`);
    if (mode & WRITABLE_BY_OTHERS && !(mode & STICKY)) throw distrust(file, `other users may write to ${above}`);
    if (above === path.dirname(above)) return found;
  }
}

function distrust(file, why) {
  const error = new Error(`the listener at ${file} is not believed: ${why}`);
  error.code = 'REJOIN_UNTRUSTED';
  return error;
}

function numbers(users) {
  const believed = new Set([process.geteuid(), ...users.map(numberOf)]);
  // A user outside of this namespace: it may be anybody.
  believed.delete(overflowUser());
  return believed.add(0);
}

/** The number of a user. Throws if there is none of that name. */
function numberOf(user) {
  if (Number.isSafeInteger(user) && user >= 0) return user;
  if (/^\d+$/.test(user)) return Number(user);
  for (const line of fs.readFileSync('/etc/passwd', 'utf8').split('\n')) {
    const [name, , number] = line.split(':');
    if (name === user) return Number(number);
  }
  throw new Error(`there is no user ${user} in /etc/passwd: give the number`);
}

function overflowUser() {
  try {
    return Number(fs.readFileSync('/proc/sys/kernel/overflowuid', 'utf8'));
  } catch {
    return 65534;
  }
}

module.exports = { distrust, reach };
