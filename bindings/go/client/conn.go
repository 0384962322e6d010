package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"syscall"
)

// ErrTruncated says that the connection ended, and the server did not say that this was all. It is an
// io.ErrUnexpectedEOF.
var ErrTruncated = fmt.Errorf("the connection broke off: the server did not say that this was all: %w", io.ErrUnexpectedEOF)

// Session is the manager's facts about a connection: the fields of docs/manager-protocol.md.
type Session struct {
	Connection string `json:"connection"`
	Resumed    bool   `json:"resumed"`
	Why        string `json:"why"`
	// Version is TLSv1.2 or TLSv1.3.
	Version string `json:"version"`
	Cipher  string `json:"cipher"`
	Group   string `json:"group"`
	// Protocol is what ALPN agreed on, if anything.
	Protocol string `json:"alpn"`
	Peer     string `json:"peer"`
	// SessionOf is the other name whose session was resumed, if any.
	SessionOf string `json:"session_of"`
	// Chain is the server's certificates, its own first.
	Chain []Certificate `json:"chain"`
}

// Certificate is one of a chain.
type Certificate struct {
	SHA256 string `json:"sha256"`
	DER    []byte `json:"der"`
}

// Conn is a connection to the server, through the manager: what is read and written is plaintext.
type Conn struct {
	*net.UnixConn
	Session Session
	manager string
	over    sync.Once
	end     error
}

// Read reads what the server sent. At the end it asks the manager whether this was all, and fails with ErrTruncated if
// the server did not say so.
func (c *Conn) Read(into []byte) (int, error) {
	count, err := c.UnixConn.Read(into)
	if err == nil || !(errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET)) {
		return count, err
	}
	c.over.Do(func() { c.end = c.howItEnded() })
	return count, c.end
}

func (c *Conn) howItEnded() error {
	ctx, done := context.WithTimeout(context.Background(), patience)
	defer done()
	end, err := ended(ctx, c.manager, c.Session.Connection)
	if err != nil {
		return errors.Join(ErrTruncated, err)
	}
	if end != "clean" {
		return ErrTruncated
	}
	return io.EOF
}

// RemoteAddr is the server's address.
func (c *Conn) RemoteAddr() net.Addr {
	if address, err := netip.ParseAddrPort(c.Session.Peer); err == nil {
		return net.TCPAddrFromAddrPort(address)
	}
	return c.UnixConn.RemoteAddr()
}

// WriteTo is io.Copy's, and ends as Read does.
func (c *Conn) WriteTo(to io.Writer) (int64, error) {
	return io.Copy(to, struct{ io.Reader }{c})
}
