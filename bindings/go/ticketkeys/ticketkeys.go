// Package ticketkeys lets a TLS server of crypto/tls encrypt its session tickets with the keys that `rejoin share`
// gives to all servers of a context: they open each other's tickets, also after a restart, and the keys rotate by
// themselves.
//
// Until the first keys come, and where no share runs, a server does as it does without this package. If the share goes
// away, the last keys stay in use.
package ticketkeys

import (
	"context"
	"crypto/tls"
	"errors"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/rejoin-tls/rejoin-go/internal/policy"
	"github.com/rejoin-tls/rejoin-go/share"
)

// ErrAttached says that a config has WrapSession or UnwrapSession already.
var ErrAttached = errors.New("this config wraps its sessions already: attach one thing to it")

// Options say which share, and for whom.
type Options struct {
	share.Options
	// Checks names what the program's VerifyPeerCertificate checks. crypto/tls does not call it for a resumed session.
	// So tickets of a config that has one, and asks for certificates, open at that config and its clones alone. Give
	// servers that check exactly the same the same name: then they open each other's.
	Checks string
}

// Ring is the ticket keys of a context, as they are now.
type Ring struct {
	keys atomic.Pointer[tls.Config]
	// before has keys of its own, until the first come.
	before tls.Config
	list   atomic.Pointer[[][32]byte]
	came   chan struct{}
	checks string

	lock    sync.Mutex
	changed chan struct{}
}

// Follow follows the ring until the context ends, and attaches configs. It does not wait for the share. It fails only
// if the options are wrong, or if a config is attached already.
func Follow(ctx context.Context, options Options, configs ...*tls.Config) (*Ring, error) {
	if err := options.Options.Check(); err != nil {
		return nil, err
	}
	ring := &Ring{came: make(chan struct{}), changed: make(chan struct{}), checks: options.Checks}
	for _, config := range configs {
		if err := ring.Attach(config); err != nil {
			return nil, err
		}
	}
	go share.FollowKeys(ctx, options.Options, share.Raw32, ring.turn)
	return ring, nil
}

// Ready is closed when the first keys have come.
func (r *Ring) Ready() <-chan struct{} { return r.came }

// Keys returns the keys, the one that encrypts first, and a channel that is closed when they change. It returns no keys
// before the first have come. They are for tls.Config.SetSessionTicketKeys.
func (r *Ring) Keys() ([][32]byte, <-chan struct{}) {
	r.lock.Lock()
	defer r.lock.Unlock()
	if list := r.list.Load(); list != nil {
		return slices.Clone(*list), r.changed
	}
	return nil, r.changed
}

func (r *Ring) turn(list share.KeyList) {
	keys := make([][32]byte, len(list.Keys))
	for i, key := range list.Keys {
		copy(keys[i][:], key.Secret)
		clear(key.Secret)
	}
	holder := new(tls.Config)
	holder.SetSessionTicketKeys(keys)
	r.lock.Lock()
	defer r.lock.Unlock()
	first := r.keys.Swap(holder) == nil
	r.list.Store(&keys)
	close(r.changed)
	r.changed = make(chan struct{})
	if first {
		close(r.came)
	}
}

// Attach has a config use the ring. Call it when all else is set, and before the config serves. Its clones use the
// ring, too: http.Server makes one, and tls.Config.SetSessionTicketKeys would not reach it. A config that
// GetConfigForClient returns needs to be attached itself, unless it is a clone of one that is. If it has a
// VerifyPeerCertificate and no Checks, let it be such a clone: what is attached anew for each client resumes nothing.
func (r *Ring) Attach(config *tls.Config) error {
	if config.WrapSession != nil || config.UnwrapSession != nil {
		return ErrAttached
	}
	own, tickets := policy.NewOwn(), policy.Tickets{Config: config, Keys: &r.before}
	asked := sync.OnceValue(func() policy.Policy { return policy.Of(config, r.checks, own) })
	config.WrapSession = func(about tls.ConnectionState, session *tls.SessionState) ([]byte, error) {
		return r.wrap(tickets, asked(), about, session)
	}
	config.UnwrapSession = func(ticket []byte, about tls.ConnectionState) (*tls.SessionState, error) {
		return r.unwrap(tickets, asked(), ticket, about)
	}
	return nil
}

func (r *Ring) wrap(own policy.Tickets, asked policy.Policy, about tls.ConnectionState, session *tls.SessionState) ([]byte, error) {
	keys := r.keys.Load()
	if keys == nil {
		return own.Encrypt(asked, about, session)
	}
	asked.Enter(session, about)
	return keys.EncryptTicket(about, session)
}

func (r *Ring) unwrap(own policy.Tickets, asked policy.Policy, ticket []byte, about tls.ConnectionState) (*tls.SessionState, error) {
	if keys := r.keys.Load(); keys != nil {
		session, err := keys.DecryptTicket(ticket, about)
		if err != nil || session != nil {
			return asked.Checked(session, about), err
		}
	}
	// One of this server's own, of the time before the first keys came.
	return own.Decrypt(asked, ticket, about)
}
