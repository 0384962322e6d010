import rejoin = require('rejoin-tls');
import https = require('node:https');

const keys: rejoin.TicketKeys = rejoin.ticketKeys(https.createServer({}), { context: 'shop' });
keys.close();
