// Package sessions lets a TLS server of crypto/tls keep its sessions in a Rejoin cache, through `rejoin share`. A ticket
// is then a random number, and opens nothing by itself. A session is used once. The cache learns when each client
// comes back, and keeps the sessions that are needed soonest.
//
// Where no share runs, a server issues crypto/tls's own tickets, as it does without this package.
package sessions

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rejoin-tls/rejoin-go/internal/policy"
	"github.com/rejoin-tls/rejoin-go/share"
)

// ErrAttached says that a config has WrapSession or UnwrapSession already.
var ErrAttached = errors.New("this config wraps its sessions already: attach one thing to it")

const (
	ticketBytes = 32
	// crypto/tls resumes nothing older.
	longest  = 7 * 24 * time.Hour
	lifetime = 24 * time.Hour
)

// Options say which share, for whom, and how.
type Options struct {
	share.Options
	// Wait is how long a handshake waits for the share at most: by default 50 ms. Then it is a full one.
	Wait time.Duration
	// Lifetime is how long a session may be resumed: by default a day, and seven at most.
	Lifetime time.Duration
	// Checks names what the program's VerifyPeerCertificate checks. crypto/tls does not call it for a resumed session.
	// So sessions of a config that has one, and asks for certificates, are resumed at that config and its clones alone,
	// or at its listener. Give servers that check exactly the same the same name: then they resume each other's.
	Checks string
	// KeepTLS12 lets a session of TLS 1.2 be used more than once. Then clients that open several connections at once
	// with one ticket resume them all.
	KeepTLS12 bool
	// NoTickets stops the tickets of crypto/tls where the share cannot be used: then nothing is resumed.
	NoTickets bool
	// Returns says when the client of a connection comes back, if the program knows; zero if not.
	Returns func(tls.ConnectionState) time.Duration
}

// Cache is the sessions of a context.
type Cache struct {
	options Options
	share   *share.Sessions
	visits  visits
	counts  struct{ found, missed, stored, tickets atomic.Uint64 }
}

// Counts are those since the start.
type Counts struct {
	// Found and Missed are lookups of tickets that are of the cache's form.
	Found, Missed uint64
	// Stored are sessions that went to the share; Tickets those for which crypto/tls made a ticket instead.
	Stored, Tickets uint64
}

// Open connects to the share in the background, until the context ends. It fails only if the options are wrong.
func Open(ctx context.Context, options Options) (*Cache, error) {
	if options.Wait == 0 {
		options.Wait = share.Wait
	}
	if options.Lifetime == 0 {
		options.Lifetime = lifetime
	}
	if options.Lifetime < time.Second || options.Lifetime > longest {
		return nil, errors.New("a session's lifetime is a second to seven days")
	}
	opened, err := share.OpenSessions(ctx, options.Options)
	if err != nil {
		return nil, err
	}
	return &Cache{options: options, share: opened}, nil
}

// Ready is closed when the share has answered for the first time.
func (c *Cache) Ready() <-chan struct{} { return c.share.Ready() }

// Counts returns what has happened so far.
func (c *Cache) Counts() Counts {
	return Counts{
		Found: c.counts.found.Load(), Missed: c.counts.missed.Load(),
		Stored: c.counts.stored.Load(), Tickets: c.counts.tickets.Load(),
	}
}

// Attach has a config keep its sessions in the cache. Call it when all else is set, and before the config serves. It is
// for programs that make the TLS connections themselves, as http.Server.ServeTLS and gRPC do; Listener is the better
// choice where it can be. Clones of the config use the cache, too.
//
// crypto/tls does not say which connection it asks for. Attach tells connections apart by the string that holds the
// server name that the client sent. Of clients that send none, the cache learns nothing.
func (c *Cache) Attach(config *tls.Config) error {
	if isAttached(config) {
		return ErrAttached
	}
	own := policy.NewOwn()
	asked := sync.OnceValue(func() policy.Policy { return policy.Of(config, c.options.Checks, own) })
	tickets := configTickets{config}
	config.UnwrapSession = func(ticket []byte, about tls.ConnectionState) (*tls.SessionState, error) {
		found, session, err := c.unwrap(tickets, asked(), ticket, about)
		c.visits.begin(about.ServerName, found)
		return session, err
	}
	config.WrapSession = func(about tls.ConnectionState, session *tls.SessionState) ([]byte, error) {
		ticket, _, err := c.wrap(tickets, asked(), c.visits.end(about.ServerName), about, session)
		return ticket, err
	}
	return nil
}

func isAttached(config *tls.Config) bool {
	return config.WrapSession != nil || config.UnwrapSession != nil
}

// tickets are crypto/tls's own, for where the share cannot be used.
type tickets interface {
	Encrypt(policy.Policy, tls.ConnectionState, *tls.SessionState) ([]byte, error)
	Decrypt(policy.Policy, []byte, tls.ConnectionState) (*tls.SessionState, error)
}

// configTickets are those of a config that stays.
type configTickets struct{ config *tls.Config }

func (t configTickets) Encrypt(_ policy.Policy, about tls.ConnectionState, session *tls.SessionState) ([]byte, error) {
	return t.config.EncryptTicket(about, session)
}

func (t configTickets) Decrypt(_ policy.Policy, ticket []byte, about tls.ConnectionState) (*tls.SessionState, error) {
	return t.config.DecryptTicket(ticket, about)
}

func (c *Cache) unwrap(own tickets, asked policy.Policy, ticket []byte, about tls.ConnectionState) (*share.Found, *tls.SessionState, error) {
	if len(ticket) != ticketBytes {
		if c.options.NoTickets {
			return nil, nil, nil
		}
		session, err := own.Decrypt(asked, ticket, about)
		return nil, session, err
	}
	id := asked.ID(ticket, about.ServerName)
	found := c.find(id[:], about.Version)
	if found == nil {
		c.counts.missed.Add(1)
		return nil, nil, nil
	}
	session := parse(ticket, found.Session)
	if session == nil {
		c.counts.missed.Add(1)
		return nil, nil, nil
	}
	c.counts.found.Add(1)
	return found, session, nil
}

// parse returns nil for a session that was damaged, or that another release of Go has stored.
func parse(ticket, sealed []byte) *tls.SessionState {
	state, err := unseal(ticket, sealed)
	if err != nil {
		return nil
	}
	session, err := tls.ParseSessionState(state)
	if err != nil {
		return nil
	}
	return session
}

func (c *Cache) find(id []byte, version uint16) *share.Found {
	if c.options.KeepTLS12 && version < tls.VersionTLS13 {
		return c.share.Get(id, c.options.Wait)
	}
	return c.share.Take(id, c.options.Wait)
}

// wrap returns the ticket, and the id under which its session is stored, if it is.
func (c *Cache) wrap(own tickets, asked policy.Policy, after *share.Found, about tls.ConnectionState, session *tls.SessionState) ([]byte, []byte, error) {
	ticket := make([]byte, ticketBytes)
	if _, err := rand.Read(ticket); err != nil {
		return nil, nil, err
	}
	if id := c.store(ticket, asked, after, about, session); id != nil {
		c.counts.stored.Add(1)
		return ticket, id, nil
	}
	c.counts.tickets.Add(1)
	if c.options.NoTickets {
		// An error would end the connection: this ticket is nobody's.
		return ticket, nil, nil
	}
	ticket, err := own.Encrypt(asked, about, session)
	return ticket, nil, err
}

func (c *Cache) store(ticket []byte, asked policy.Policy, after *share.Found, about tls.ConnectionState, session *tls.SessionState) []byte {
	state, err := session.Bytes()
	if err != nil {
		return nil
	}
	sealed, err := seal(ticket, state)
	clear(state)
	if err != nil {
		return nil
	}
	id := asked.ID(ticket, about.ServerName)
	stored := share.Stored{ID: id[:], Session: sealed, Lifetime: c.options.Lifetime, Resumed: about.DidResume}
	if about.DidResume {
		stored.After = after
	}
	if c.options.Returns != nil {
		stored.ReturnsIn = c.options.Returns(about)
	}
	if !c.share.Put(stored) {
		return nil
	}
	return id[:]
}
