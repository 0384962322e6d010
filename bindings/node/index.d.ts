import type { EventEmitter } from 'node:events';
import type { X509Certificate } from 'node:crypto';
import type { Socket } from 'node:net';
import type { Agent as HttpsAgent, AgentOptions } from 'node:https';
import type { Duplex } from 'node:stream';
import type { ConnectionOptions, PeerCertificate, Server } from 'node:tls';

/** What all uses of `rejoin share` have. */
export interface ShareOptions {
  /** What all servers that share have in common: 1 to 227 bytes. */
  context: string;
  /** The share's socket. Default: `/run/rejoin/share.sock`. */
  socket?: string;
  /** A user whose share is believed, beside this process's own and root's: a name or a number. */
  user?: string | number;
  /** The time before the first attempt to connect again, in milliseconds; it doubles up to a minute. Default: 1,000. */
  retryMs?: number;
}

export interface TicketKeysOptions extends ShareOptions {
  /** `false`: nothing but `setTicketKeys`, which holds one key. Default: `true`. */
  several?: boolean;
}

/** The ring's keys in a server. Emits `keys` for each list, and `down` when there is no share. */
export interface TicketKeys extends EventEmitter {
  readonly status: {
    /** Whether the server has the share's keys, and is told of changes. */
    following: boolean;
    keys: number;
    /** Whether the server opens tickets of all the keys, or only of the one that encrypts. */
    several: boolean;
    /** Why this server shares nothing. */
    refused: string | undefined;
    /** The longest lifetime that a server may give a ticket, in seconds. */
    ticketLifetimeS: number | undefined;
    changesInS: number | undefined;
  };
  /** Leaves the ring. Tickets that were made with it no longer resume here. */
  close(): void;
  on(event: 'keys', listener: (count: number) => void): this;
  on(event: 'down', listener: (error: Error) => void): this;
  once(event: 'keys', listener: (count: number) => void): this;
  once(event: 'down', listener: (error: Error) => void): this;
}

export interface SessionsOptions extends ShareOptions {
  /** How long a handshake waits for a session at most, in milliseconds. Default: 25. */
  deadlineMs?: number;
}

/** A server's sessions in the share. Emits `ready` when the share answers, and `down` when there is none. */
export interface Sessions extends EventEmitter {
  readonly status: {
    following: boolean;
    refused: string | undefined;
    asked: number;
    found: number;
    late: number;
    stored: number;
    noRoom: number;
  };
  /** Says when the client of this connection, a `request.socket`, comes back. Resolves to whether the share has its session. */
  hint(socket: Socket, returnsInS: number): Promise<boolean>;
  close(): void;
  on(event: 'ready', listener: () => void): this;
  on(event: 'down', listener: (error: Error) => void): this;
  once(event: 'ready', listener: () => void): this;
  once(event: 'down', listener: (error: Error) => void): this;
}

/** Gives a server of tls, https or http2 the ring's ticket keys, and follows them. */
export function ticketKeys(server: Server, options: TicketKeysOptions): TicketKeys;

/** Keeps a server's TLS 1.2 sessions in the share. */
export function sessions(server: Server, options: SessionsOptions): Sessions;

export type Trust = 'system' | 'none' | { bundle: string } | { pins: string[] };

/** The manager's facts about a connection: docs/manager-protocol.md. */
export interface Session {
  connection: string;
  resumed: boolean;
  why: string;
  version: 'TLSv1.2' | 'TLSv1.3';
  cipher: string;
  group?: string;
  alpn?: string;
  peer: string;
  session_of?: string;
  early_data: 'accepted' | 'rejected' | 'not_offered';
  chain: { sha256: string; der?: string }[];
}

/** Fields of docs/manager-protocol.md. */
export interface Wishes {
  /** The path of the manager's socket. Default: where it usually is. */
  manager?: string;
  signal?: AbortSignal;
  alpn?: string[];
  addresses?: string[];
  trust?: Trust;
  identity?: { chain: string; key: string };
  share?: boolean;
  label?: string;
  /** Base64. */
  early_data?: string;
  deadline_ms?: number;
  known?: string[];
  min_version?: '1.2' | '1.3';
}

/** Plaintext here, and TLS from the manager on. */
export interface Connection extends Duplex {
  readonly session: Session;
  readonly encrypted: true;
  readonly authorized: boolean;
  readonly alpnProtocol: string | false;
  readonly remoteAddress: string | undefined;
  readonly remotePort: number;
  readonly timeout: number | undefined;
  setTimeout(afterMs: number, callback?: () => void): this;
  setNoDelay(): this;
  setKeepAlive(): this;
  ref(): this;
  unref(): this;
  getProtocol(): string;
  getCipher(): { name: string; standardName: string; version: string };
  isSessionReused(): boolean;
  getSession(): undefined;
  getPeerX509Certificate(): X509Certificate | undefined;
  getPeerCertificate(): PeerCertificate | {};
}

/** A TLS connection from the manager. Fails with a ManagerError. */
export function connect(host: string, port?: number, wishes?: Wishes): Promise<Connection>;

/** The manager's counts. */
export function stats(manager?: string): Promise<Record<string, unknown>>;

/** The manager gave no connection. */
export class ManagerError extends Error {
  readonly kind: string;
  readonly code: string;
  readonly detail: string;
  readonly remedy: string;
  /** 0-RTT data had left: the server may have acted on it. */
  readonly earlyData: 'sent' | undefined;
  /** The manager itself failed the program: a direct connection may succeed. */
  readonly isTheManagers: boolean;
}

/** The connection ended, and the server did not say that this was all. */
export class Truncated extends Error {
  readonly code: 'ECONNRESET';
}

export interface Through extends Wishes {
  /** `false`: no connection rather than one without the manager. Default: `true`. */
  direct?: boolean;
}

/** An agent whose connections come from the manager, or are Node's own where that does not serve. */
export class Agent extends HttpsAgent {
  constructor(options?: AgentOptions & { rejoin?: Through });
}

export type Connector = (wanted: any, created: (...result: any[]) => void) => void;

/** The same for undici: `new undici.Agent({ connect: connector() })`. */
export function connector(options?: ConnectionOptions & { rejoin?: Through }): Connector;

/** A dispatcher for Node's own `fetch`; `any`, because Node declares no type for it. */
export function dispatcher(options?: { rejoin?: Through; connect?: ConnectionOptions; [undici: string]: unknown }): Promise<any>;
