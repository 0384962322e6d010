import * as http from 'node:http';
import * as https from 'node:https';
import { Agent, connect, sessions, ticketKeys } from 'rejoin-tls';

// @ts-expect-error: it has no TLS
ticketKeys(http.createServer(), { context: 'shop' });
// @ts-expect-error: the context is missing
ticketKeys(https.createServer(), {});
// @ts-expect-error: a number
sessions(https.createServer(), { context: 'shop', deadlineMs: '10' });
// @ts-expect-error: a word of the list
connect('localhost', 443, { min_version: '1.1' });
// @ts-expect-error: unknown
new Agent({ rejoin: { labels: 'x' } });
// @ts-expect-error: a boolean
const resumed: Promise<string> = connect('localhost').then((connection) => connection.session.resumed);
export { resumed };
