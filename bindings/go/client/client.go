// Package client gets TLS connections from `rejoin manager`: the programs of a user resume each other's sessions, and
// none of them holds a session's secret. docs/manager-protocol.md describes what goes over the manager's socket.
package client

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"
)

const (
	timeout        = 10 * time.Second
	longestTimeout = 2 * time.Minute
)

// Dialer makes TLS connections through the manager. The zero value is useful; copy it only before its first use.
type Dialer struct {
	// Manager is the path of the manager's socket. By default it is where a user's own manager is, or the system's.
	Manager string
	// Authorities are PEM: these alone are trusted. By default they are the system's.
	Authorities []byte
	// Unverified connections are to anybody, and share no session.
	Unverified bool
	// Chain and Key, PEM, are the client's certificate.
	Chain, Key []byte
	// Protocols are for ALPN, the preferred one first. http.Transport speaks HTTP/1.1 alone over these connections.
	Protocols []string
	// Label divides sessions: they are shared only under the same one. It has up to 64 printable ASCII characters.
	Label string
	// MinVersion is tls.VersionTLS12, the default, or tls.VersionTLS13.
	MinVersion uint16
	// Timeout is for resolving, connecting and the handshake together: by default 10 s, and two minutes at most. The
	// context's deadline holds, too.
	Timeout time.Duration
	// Indirect stops direct connections: without a manager there is none.
	Indirect bool
	// Direct makes the connection if there is no manager, or it cannot serve. By default TLS is spoken here, with the
	// same trust, certificate and protocols.
	Direct func(ctx context.Context, network, address string) (net.Conn, error)
}

// DialTLSContext is for http.Transport's field of this name. It returns a *Conn if the manager made the connection. If
// the manager itself cannot serve, it connects directly. An error that the server causes is an *Error: a direct
// connection would fail, too.
func (d *Dialer) DialTLSContext(ctx context.Context, network, address string) (net.Conn, error) {
	host, service, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	port, err := net.DefaultResolver.LookupPort(ctx, network, service)
	if err != nil {
		return nil, err
	}
	conn, err := d.through(ctx, host, port)
	if err == nil {
		return conn, nil
	}
	var said *Error
	if ctx.Err() != nil || d.Indirect || (errors.As(err, &said) && !said.IsTheManagers()) {
		return nil, err
	}
	return d.directly(ctx, network, net.JoinHostPort(host, strconv.Itoa(port)))
}

func (d *Dialer) through(ctx context.Context, host string, port int) (*Conn, error) {
	patience := d.Timeout
	if patience <= 0 {
		patience = timeout
	}
	if deadline, ok := ctx.Deadline(); ok {
		patience = min(patience, time.Until(deadline))
	}
	wanted := connectRequest{
		Host: host, Port: port, Protocols: d.Protocols, Label: d.Label,
		Deadline: min(max(patience, time.Millisecond), longestTimeout).Milliseconds(),
	}
	if d.MinVersion == tls.VersionTLS13 {
		wanted.MinVersion = "1.3"
	}
	switch {
	case d.Unverified:
		wanted.Trust = "none"
	case d.Authorities != nil:
		wanted.Trust = map[string]string{"bundle": string(d.Authorities)}
	}
	if d.Chain != nil {
		wanted.Identity = &identity{Chain: string(d.Chain), Key: string(d.Key)}
	}
	return connect(ctx, d.Manager, wanted)
}

func (d *Dialer) directly(ctx context.Context, network, address string) (net.Conn, error) {
	if d.Direct != nil {
		return d.Direct(ctx, network, address)
	}
	config, err := d.config()
	if err != nil {
		return nil, err
	}
	dialer := &tls.Dialer{NetDialer: &net.Dialer{Timeout: d.Timeout}, Config: config}
	return dialer.DialContext(ctx, network, address)
}

// config asks for what the manager is asked for.
func (d *Dialer) config() (*tls.Config, error) {
	config := &tls.Config{NextProtos: d.Protocols, MinVersion: d.MinVersion, InsecureSkipVerify: d.Unverified}
	if d.Authorities != nil {
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(d.Authorities) {
			return nil, errors.New("there is no certificate in Authorities")
		}
	}
	if d.Chain != nil {
		certificate, err := tls.X509KeyPair(d.Chain, d.Key)
		if err != nil {
			return nil, fmt.Errorf("the client's certificate: %w", err)
		}
		config.Certificates = []tls.Certificate{certificate}
	}
	return config, nil
}
