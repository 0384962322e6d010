package sessions

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/rejoin-tls/rejoin-go/internal/policy"
	"github.com/rejoin-tls/rejoin-go/share"
)

// Listener is tls.NewListener with sessions in the cache: its connections are of the type *tls.Conn. The config belongs
// to the listener from then on. It must have all that the server needs; for HTTP/2 its NextProtos are "h2" and
// "http/1.1". The configs that its GetConfigForClient returns are the listener's, too: as in crypto/tls, nobody can tell
// what their VerifyPeerCertificate checks, and they resume each other's sessions of one server name.
//
// NetConn of a connection is not the inner listener's own, but what notes its session. That has SyscallConn, and a NetConn
// that returns the inner listener's. A program that takes NetConn for a *net.TCPConn uses Attach.
func (c *Cache) Listener(inner net.Listener, config *tls.Config) (net.Listener, error) {
	if isAttached(config) {
		return nil, ErrAttached
	}
	own := policy.NewOwn()
	l := &listener{Listener: inner, cache: c, config: config, own: own, asked: policy.Of(config, c.options.Checks, own)}
	// Clones need no keys of their own, and would make some.
	l.model = config.Clone()
	var unused [32]byte
	if _, err := rand.Read(unused[:]); err != nil {
		return nil, err
	}
	l.model.SetSessionTicketKeys([][32]byte{unused})
	return l, nil
}

type listener struct {
	net.Listener
	cache  *Cache
	config *tls.Config
	model  *tls.Config
	own    policy.Own
	asked  policy.Policy
}

func (l *listener) Accept() (net.Conn, error) {
	raw, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	v := &visit{Conn: raw, cache: l.cache}
	own := l.model.Clone()
	v.attach(own, configTickets{l.config}, l.asked)
	if choose := l.config.GetConfigForClient; choose != nil {
		own.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) { return l.chosen(v, choose, hello) }
	}
	return tls.Server(v, own), nil
}

// chosen attaches the config that the program chooses for a client.
func (l *listener) chosen(v *visit, choose func(*tls.ClientHelloInfo) (*tls.Config, error), hello *tls.ClientHelloInfo) (*tls.Config, error) {
	config, err := choose(hello)
	if err != nil || config == nil || isAttached(config) {
		return config, err
	}
	own := config.Clone()
	v.attach(own, policy.Tickets{Config: config, Keys: l.config}, policy.Of(config, l.cache.options.Checks, l.own))
	return own, nil
}

// visit is a connection, and what is known of its session.
type visit struct {
	net.Conn
	cache  *Cache
	found  *share.Found
	stored atomic.Pointer[[]byte]
}

// NetConn is the connection that the inner listener has accepted.
func (v *visit) NetConn() net.Conn { return v.Conn }

// SyscallConn is that of the same, if it has one: programs set options of the socket by it.
func (v *visit) SyscallConn() (syscall.RawConn, error) {
	if socket, ok := v.Conn.(syscall.Conn); ok {
		return socket.SyscallConn()
	}
	return nil, errors.ErrUnsupported
}

// attach has own keep sessions in the cache. Where that cannot be, it issues these tickets: no two configs of a program
// share what they would not share without this package.
func (v *visit) attach(own *tls.Config, tickets tickets, asked policy.Policy) {
	own.UnwrapSession = func(ticket []byte, about tls.ConnectionState) (*tls.SessionState, error) {
		found, session, err := v.cache.unwrap(tickets, asked, ticket, about)
		v.found = found
		return session, err
	}
	own.WrapSession = func(about tls.ConnectionState, session *tls.SessionState) ([]byte, error) {
		ticket, id, err := v.cache.wrap(tickets, asked, v.found, about, session)
		v.found = nil
		if id != nil {
			v.stored.Store(&id)
		}
		return ticket, err
	}
}

// Hint tells the cache when the client of a connection comes back. The connection is one of Listener's. It returns
// false if the cache has no session of it, or cannot be reached.
func Hint(conn net.Conn, returnsIn time.Duration) bool {
	secured, ok := conn.(*tls.Conn)
	if !ok {
		return false
	}
	v, ok := secured.NetConn().(*visit)
	if !ok {
		return false
	}
	id := v.stored.Load()
	return id != nil && v.cache.share.Hint(*id, returnsIn)
}

type connection struct{}

// ConnContext is for the field of this name in http.Server: it lets NextConnect find the connection of a request.
func ConnContext(ctx context.Context, conn net.Conn) context.Context {
	return context.WithValue(ctx, connection{}, conn)
}

// NextConnect reads the requests' header Next-Connect, in which a client says in how many seconds it connects next, and
// tells the cache.
func NextConnect(next http.Handler) http.Handler {
	return http.HandlerFunc(func(answer http.ResponseWriter, request *http.Request) {
		if conn, ok := request.Context().Value(connection{}).(net.Conn); ok {
			if returnsIn, ok := announced(request.Header.Get("Next-Connect")); ok {
				Hint(conn, returnsIn)
			}
		}
		next.ServeHTTP(answer, request)
	})
}

// announced reads seconds, with a fraction if need be.
func announced(said string) (time.Duration, bool) {
	seconds, err := strconv.ParseFloat(said, 64)
	if err != nil || !(seconds > 0 && seconds <= longest.Seconds()) {
		return 0, false
	}
	return time.Duration(seconds * float64(time.Second)), true
}
