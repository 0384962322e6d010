import * as http2 from 'node:http2';
import * as https from 'node:https';
import * as tls from 'node:tls';
import { Agent, ManagerError, connect, connector, dispatcher, sessions, stats, ticketKeys } from 'rejoin-tls';

const keys = ticketKeys(https.createServer({}), { context: 'shop', user: 'rejoin', several: true });
keys.on('keys', (count: number) => count).on('down', (error: Error) => error.message);
const lifetime: number | undefined = keys.status.ticketLifetimeS;
ticketKeys(http2.createSecureServer({}), { context: 'shop' }).close();
const kept = sessions(tls.createServer({}), { context: 'shop', deadlineMs: 10 });
const hinted = (socket: tls.TLSSocket): Promise<boolean> => kept.hint(socket, 60);
https.createServer((request) => kept.hint(request.socket, 60));
http2.createSecureServer((request) => kept.hint(request.socket, 60));
https.get('https://localhost/', { agent: new Agent({ keepAlive: true, rejoin: { label: 'shop' } }) });

async function program(): Promise<boolean> {
  const connection = await connect('localhost', 443, { alpn: ['h2'], trust: { pins: ['00'] } });
  connection.end('x');
  const answer = await fetch('https://localhost/', { dispatcher: await dispatcher() } as RequestInit);
  await stats();
  return answer.ok && connection.session.resumed;
}

program().catch((error) => error instanceof ManagerError && error.isTheManagers);
export { connector, hinted, lifetime };
