package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
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
	closing atomic.Bool
	// Writes that go on, and whether one has failed.
	writes atomic.Int32
	broke  atomic.Bool
}

const (
	// As crypto/tls has for its close_notify.
	closingTime = 5 * time.Second
	// The manager has long seen the end of what the program wrote when so much more has come.
	closingBytes = 1 << 20
)

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

// Write sends to the server.
func (c *Conn) Write(what []byte) (int, error) {
	c.writes.Add(1)
	defer c.writes.Add(-1)
	count, err := c.UnixConn.Write(what)
	if err != nil {
		c.broke.Store(true)
	}
	return count, err
}

// Close tells the server that this was all, as crypto/tls does, unless a Write has failed or still goes on. The manager
// cannot tell it once the program has gone, so the socket stays open in the background until the server has ended, too,
// for five seconds at most. A program that may exit before that calls CloseWrite and reads to the end.
func (c *Conn) Close() error {
	if c.closing.Swap(true) || c.broke.Load() || c.writes.Load() > 0 {
		return c.UnixConn.Close()
	}
	// Not a net.Conn: net.FileConn has both block for a moment, and a Read that begins then is not ended by Close.
	rest, err := c.File()
	if err != nil {
		return c.UnixConn.Close()
	}
	if c.CloseWrite() != nil {
		rest.Close()
		return c.UnixConn.Close()
	}
	go func() {
		defer rest.Close()
		rest.SetReadDeadline(time.Now().Add(closingTime))
		io.CopyN(io.Discard, rest, closingBytes)
	}()
	// Who waits in Read is told now.
	return c.UnixConn.Close()
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
