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
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	timeout        = 10 * time.Second
	longestTimeout = 2 * time.Minute
	mostAddresses  = 16
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
	// Timeout is for resolving, connecting and the handshake together: two minutes at most. By default the manager has
	// 10 s, and a direct connection, which follows, is not limited. The context's deadline holds, too.
	Timeout time.Duration
	// Indirect stops direct connections: without a manager there is none.
	Indirect bool
	// Direct makes the connection if there is no manager, or it cannot serve. By default TLS is spoken here, with the
	// same trust, certificate and protocols.
	Direct func(ctx context.Context, network, address string) (net.Conn, error)
}

// DialTLSContext is for http.Transport's field of this name. It returns a *Conn if the manager made the connection. If
// the manager itself cannot serve, or takes no such request, it connects directly. An error that the server causes is an
// *Error: a direct connection would fail, too.
func (d *Dialer) DialTLSContext(ctx context.Context, network, address string) (net.Conn, error) {
	host, service, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	port, err := net.DefaultResolver.LookupPort(ctx, network, service)
	if err != nil {
		return nil, err
	}
	conn, err := d.through(ctx, network, host, port)
	if err == nil {
		return conn, nil
	}
	if ctx.Err() != nil {
		return nil, &net.OpError{Op: "dial", Net: network, Err: whyItEnded(ctx)}
	}
	var said *Error
	if d.Indirect || (errors.As(err, &said) && !said.allowsDirect(d.Timeout <= 0)) {
		return nil, err
	}
	return d.directly(ctx, network, net.JoinHostPort(host, strconv.Itoa(port)))
}

// whyItEnded is the context's error, and the program's reason if it gave one.
func whyItEnded(ctx context.Context) error {
	if cause := context.Cause(ctx); cause != ctx.Err() {
		return fmt.Errorf("%w: %w", ctx.Err(), cause)
	}
	return ctx.Err()
}

func (d *Dialer) through(ctx context.Context, network, host string, port int) (*Conn, error) {
	if named := otherAuthorities(); named != "" && d.Authorities == nil && !d.Unverified {
		detail := named + " names other authorities than the manager's"
		return nil, &Error{Kind: "bad_request", Detail: detail, Remedy: "give Authorities, or allow direct connections"}
	}
	addresses, err := addressesOf(ctx, network, host)
	if err != nil {
		return nil, err
	}
	patience := d.Timeout
	if patience <= 0 {
		patience = timeout
	}
	if deadline, ok := ctx.Deadline(); ok {
		patience = min(patience, time.Until(deadline))
	}
	wanted := connectRequest{
		Host: host, Port: port, Addresses: addresses, Protocols: d.Protocols, Label: d.Label,
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

// addressesOf are those of a name that this network has. None: all that the manager finds.
func addressesOf(ctx context.Context, network, host string) ([]netip.Addr, error) {
	if network == "tcp" {
		return nil, nil
	}
	found, err := net.DefaultResolver.LookupNetIP(ctx, strings.Replace(network, "tcp", "ip", 1), host)
	if err != nil {
		return nil, &net.OpError{Op: "dial", Net: network, Err: err}
	}
	for i := range found {
		found[i] = found[i].Unmap()
	}
	return found[:min(len(found), mostAddresses)], nil
}

// The places where systems keep the authorities that the manager trusts, too.
var systems = []string{
	"/etc/ssl/certs/ca-certificates.crt",
	"/etc/pki/tls/certs/ca-bundle.crt",
	"/etc/ssl/ca-bundle.pem",
	"/etc/pki/tls/cacert.pem",
	"/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
	"/etc/ssl/cert.pem",
	"/etc/ssl/certs",
	"/etc/pki/tls/certs",
}

// otherAuthorities is the variable by which crypto/x509 trusts others than the system's. It reads folders besides a
// file, so no bundle says what it trusts.
func otherAuthorities() string {
	known := func(place string) bool {
		place = resolved(place)
		return slices.ContainsFunc(systems, func(system string) bool { return resolved(system) == place })
	}
	for _, name := range []string{"SSL_CERT_FILE", "SSL_CERT_DIR"} {
		for _, place := range strings.Split(os.Getenv(name), ":") {
			if place != "" && !known(place) {
				return name
			}
		}
	}
	return ""
}

func resolved(path string) string {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		return real
	}
	return filepath.Clean(path)
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
