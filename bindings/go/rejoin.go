// Package rejoin is the root of the module, and has its version. The packages do the work: ticketkeys and sessions
// for servers, client for programs, and share, which both of the former use.
package rejoin

// Version is the module's.
const Version = "0.1.0"
