// The same for `import`.
import rejoin from './index.js';

export const { Agent, ManagerError, Truncated, connect, connector, dispatcher, sessions, stats, ticketKeys } = rejoin;
