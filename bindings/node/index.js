// Rejoin for Node: ticket keys and sessions of the machine's share, and connections of its TLS manager.
'use strict';

const { Agent, connector, dispatcher } = require('./lib/agent.js');
const { connect, Truncated } = require('./lib/connection.js');
const { ManagerError, stats } = require('./lib/manager.js');
const { sessions } = require('./lib/sessions.js');
const { ticketKeys } = require('./lib/ticket_keys.js');

module.exports = { Agent, ManagerError, Truncated, connect, connector, dispatcher, sessions, stats, ticketKeys };
