// Package share speaks with `rejoin share`, the daemon that gives a TLS server ticket keys and keeps its sessions.
// docs/share-protocol.md describes what goes over the socket. The packages ticketkeys and sessions attach it to
// crypto/tls; most servers need only those.
package share

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"os/user"
	"strconv"
	"time"

	"github.com/rejoin-tls/rejoin-go/internal/wire"
)

// Socket is where the share listens unless Options say otherwise.
const Socket = "/run/rejoin/share.sock"

const (
	contextBytes  = 255
	requestBytes  = 128 * 1024
	answerBytes   = 256 * 1024
	firstAnswer   = 10 * time.Second
	shortestPause = time.Second
	longestPause  = time.Minute
	// A connection that lasted so long begins anew with the shortest pause.
	lasted = time.Minute
)

// Options say which share, and for whom.
type Options struct {
	// Socket is the share's path; by default the constant of this name.
	Socket string
	// Context is 1 to 255 bytes. Servers with the same context open each other's tickets, or resume each other's
	// sessions.
	Context string
	// User is a user, by name or number, who may run the share, beside this one and root.
	User string
	// Report is told why the share cannot be used, and nil when it can, at each change. By default the log is.
	Report func(error)
}

// Error is the share's refusal. Kind is a word of the protocol's list.
type Error struct {
	Kind    string `json:"kind"`
	Message string `json:"message"`
}

func (e *Error) Error() string { return fmt.Sprintf("the share refuses (%s): %s", e.Kind, e.Message) }

type place struct {
	Options
	users []int
	said  string
	told  bool
}

func (o Options) place() (*place, error) {
	if len(o.Context) == 0 || len(o.Context) > contextBytes {
		return nil, fmt.Errorf("a context has 1 to %d bytes, and this one %d", contextBytes, len(o.Context))
	}
	if o.Socket == "" {
		o.Socket = Socket
	}
	if o.Report == nil {
		o.Report = report
	}
	p := &place{Options: o}
	if o.User == "" {
		return p, nil
	}
	number, err := strconv.Atoi(o.User)
	if err != nil {
		found, err := user.Lookup(o.User)
		if err != nil {
			return nil, fmt.Errorf("the share's user: %w", err)
		}
		if number, err = strconv.Atoi(found.Uid); err != nil {
			return nil, fmt.Errorf("the share's user: %w", err)
		}
	}
	p.users = []int{number}
	return p, nil
}

// Check says what is wrong with the options, if anything is.
func (o Options) Check() error {
	_, err := o.place()
	return err
}

func report(err error) {
	if err != nil {
		log.Printf("rejoin: %v", err)
		return
	}
	log.Print("rejoin: the share answers")
}

// tell reports a change. Only the goroutine of the place's connection calls it.
func (p *place) tell(err error) {
	said := ""
	if err != nil {
		said = err.Error()
	}
	if p.told && said == p.said {
		return
	}
	p.said, p.told = said, true
	p.Report(err)
}

// keepOn makes one connection after the other until the context ends. Each is for use, which returns why it ended.
func (p *place) keepOn(ctx context.Context, use func(context.Context, *net.UnixConn) error) {
	pause := shortestPause
	for ctx.Err() == nil {
		begun := time.Now()
		err := p.once(ctx, use)
		if ctx.Err() != nil {
			return
		}
		p.tell(fmt.Errorf("no share at %s, so this server goes on by itself: %w; is `rejoin share` running?", p.Socket, err))
		if time.Since(begun) >= lasted {
			pause = shortestPause
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
		pause = min(2*pause, longestPause)
	}
}

func (p *place) once(ctx context.Context, use func(context.Context, *net.UnixConn) error) error {
	dialling, done := context.WithTimeout(ctx, firstAnswer)
	conn, err := wire.Dial(dialling, p.Socket, p.users...)
	done()
	if err != nil {
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	return use(ctx, conn)
}

// begin sends the first message of a connection.
func begin(conn net.Conn, message any) error {
	said, err := wire.Append(nil, message, requestBytes)
	if err != nil {
		return err
	}
	if err := conn.SetDeadline(time.Now().Add(firstAnswer)); err != nil {
		return err
	}
	_, err = conn.Write(said)
	return err
}

// opening is what every answer may have.
type opening struct {
	Rejoin int    `json:"rejoin"`
	Error  *Error `json:"error"`
}

func (o opening) check() error {
	if o.Error != nil {
		return o.Error
	}
	if o.Rejoin != wire.Version {
		return fmt.Errorf("it speaks version %d of the protocol, and this module version %d: update the older", o.Rejoin, wire.Version)
	}
	return nil
}

var errAnswer = errors.New("its answer is not of the protocol")
