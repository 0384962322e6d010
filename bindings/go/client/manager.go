package client

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/user"
	"path/filepath"
	"regexp"
	"strconv"
	"sync"
	"time"

	"github.com/rejoin-tls/rejoin-go/internal/wire"
)

const (
	requestBytes  = 256 * 1024
	answerBytes   = 1024 * 1024
	systemSocket  = "/run/rejoin/manager.sock"
	settings      = "/etc/rejoin/client.toml"
	settingsBytes = 64 * 1024
	// Past a request's own deadline.
	patience = 3 * time.Second
	// A manager that has been silent for so long is asked whether it lives.
	silence = time.Second
	lives   = 2 * time.Second
)

// Error is a connection that the manager did not give.
type Error struct {
	// Kind is a word of the protocol's list, or not_running or silent.
	Kind   string `json:"kind"`
	Detail string `json:"detail"`
	Remedy string `json:"remedy"`
	cause  error
}

func (e *Error) Error() string {
	if e.Remedy == "" {
		return e.Detail
	}
	return e.Detail + "; " + e.Remedy
}

func (e *Error) Unwrap() error { return e.cause }

// Timeout is for net.Error.
func (e *Error) Timeout() bool { return e.Kind == "timeout" }

// Temporary is for net.Error.
func (e *Error) Temporary() bool { return e.Timeout() }

// IsTheManagers is true if the manager itself failed, so that a direct connection may succeed.
func (e *Error) IsTheManagers() bool {
	switch e.Kind {
	case "busy", "no_session", "shutting_down", "unsupported_version", "not_permitted", "not_running", "silent":
		return true
	}
	return false
}

// Is has a time that was up be a context.DeadlineExceeded, as it is for package net.
func (e *Error) Is(target error) bool { return target == context.DeadlineExceeded && e.Timeout() }

// allowsDirect is true if a direct connection may succeed: with longer requests than the manager reads, or more time
// than it has unless the program names one. The server has got nothing of the program's.
func (e *Error) allowsDirect(mayBeLate bool) bool {
	switch e.Kind {
	case "too_large", "bad_request":
		return true
	case "timeout":
		return mayBeLate
	}
	return e.IsTheManagers()
}

func notRunning(path string, cause error) *Error {
	return &Error{"not_running", fmt.Sprintf("no manager can be used at %s: %v", path, cause), "start `rejoin manager`, or connect directly", cause}
}

func silent(cause error) *Error {
	return &Error{"silent", fmt.Sprintf("the manager does not answer: %v", cause), "start it anew, or connect directly", cause}
}

type connectRequest struct {
	Host       string       `json:"host"`
	Port       int          `json:"port"`
	Addresses  []netip.Addr `json:"addresses,omitempty"`
	Protocols  []string     `json:"alpn,omitempty"`
	Label      string       `json:"label,omitempty"`
	Deadline   int64        `json:"deadline_ms"`
	MinVersion string       `json:"min_version,omitempty"`
	Trust      any          `json:"trust,omitempty"`
	Identity   *identity    `json:"identity,omitempty"`
}

type identity struct {
	Chain string `json:"chain"`
	Key   string `json:"key"`
}

type request struct {
	Rejoin  int             `json:"rejoin"`
	Connect *connectRequest `json:"connect,omitempty"`
	End     *endRequest     `json:"end,omitempty"`
}

type endRequest struct {
	Connection string `json:"connection"`
}

type answer struct {
	Rejoin    int      `json:"rejoin"`
	Connected *Session `json:"connected"`
	End       string   `json:"end"`
	Error     *Error   `json:"error"`
}

func connect(ctx context.Context, path string, wanted connectRequest) (*Conn, error) {
	ctx, done := context.WithTimeout(ctx, time.Duration(wanted.Deadline)*time.Millisecond+patience)
	defer done()
	conn, path, err := reach(ctx, path)
	if err != nil {
		return nil, err
	}
	var waits waiting
	stop := context.AfterFunc(ctx, func() { waits.giveUp(conn) })
	dead := time.AfterFunc(silence, func() {
		if !isAlive(ctx, path) {
			waits.giveUp(conn)
		}
	})
	said, err := ask(conn, request{Rejoin: wire.Version, Connect: &wanted})
	stop()
	dead.Stop()
	if !waits.end() && err == nil {
		err = silent(os.ErrDeadlineExceeded)
	}
	if err == nil && said.Connected == nil {
		err = silent(errors.New("its answer is not of the protocol"))
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	return &Conn{UnixConn: conn, Session: *said.Connected, manager: path}, nil
}

// waiting is over when there is an answer, or when nobody waits for it any longer, whichever comes first.
type waiting struct {
	lock         sync.Mutex
	over, gaveUp bool
}

func (w *waiting) giveUp(conn net.Conn) {
	w.lock.Lock()
	defer w.lock.Unlock()
	if !w.over {
		w.over, w.gaveUp = true, true
		conn.SetDeadline(time.Unix(1, 0))
	}
}

// end returns false if it had been given up.
func (w *waiting) end() bool {
	w.lock.Lock()
	defer w.lock.Unlock()
	w.over = true
	return !w.gaveUp
}

// isAlive asks after a connection that never was.
func isAlive(ctx context.Context, path string) bool {
	ctx, done := context.WithTimeout(ctx, lives)
	defer done()
	_, err := ended(ctx, path, "00000000000000000000000000000000")
	return err == nil
}

// ended asks how a connection ended.
func ended(ctx context.Context, path, connection string) (string, error) {
	conn, _, err := reach(ctx, path)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	deadline, _ := ctx.Deadline()
	conn.SetDeadline(deadline)
	said, err := ask(conn, request{Rejoin: wire.Version, End: &endRequest{connection}})
	if err != nil {
		return "", err
	}
	return said.End, nil
}

func ask(conn *net.UnixConn, wanted request) (*answer, error) {
	message, err := wire.Append(nil, wanted, requestBytes)
	if err != nil {
		return nil, &Error{Kind: "too_large", Detail: err.Error(), cause: err}
	}
	// A manager that refuses has perhaps said why.
	_, broke := conn.Write(message)
	var said answer
	// Nothing may be read that follows the answer.
	if err := wire.Read(conn, &said, answerBytes); err != nil {
		return nil, silent(errors.Join(broke, err))
	}
	if said.Error != nil {
		return nil, said.Error
	}
	if said.Rejoin != wire.Version {
		return nil, &Error{Kind: "unsupported_version", Detail: fmt.Sprintf("the manager speaks version %d", said.Rejoin)}
	}
	return &said, nil
}

func places(path string) []string {
	if path != "" {
		return []string{path}
	}
	if own := os.Getenv("XDG_RUNTIME_DIR"); own != "" {
		return []string{filepath.Join(own, "rejoin.sock"), systemSocket}
	}
	return []string{systemSocket}
}

func reach(ctx context.Context, path string) (*net.UnixConn, string, error) {
	var first error
	for _, place := range places(path) {
		others, err := namedUser()
		if err == nil {
			var conn *net.UnixConn
			if conn, err = wire.Dial(ctx, place, others...); err == nil {
				return conn, place, nil
			}
		}
		if first == nil {
			first = notRunning(place, err)
		}
	}
	return nil, "", first
}

var userLine = regexp.MustCompile(`^(?:\s|#.*)*user\s*=\s*"([^"\n]+)"(?:\s|#.*)*$`)

// namedUser is the user in the settings, which root alone may write.
func namedUser() ([]int, error) {
	file, err := os.Open(settings)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer file.Close()
	if err := wire.OnlyRoots(file); err != nil {
		return nil, err
	}
	said := make([]byte, settingsBytes)
	count, err := bufio.NewReader(file).Read(said)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", settings, err)
	}
	found := userLine.FindSubmatch(said[:count])
	if found == nil {
		return nil, fmt.Errorf(`%s: write user = "NAME"`, settings)
	}
	name := string(found[1])
	number, err := strconv.Atoi(name)
	if err != nil {
		known, err := user.Lookup(name)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", settings, err)
		}
		if number, err = strconv.Atoi(known.Uid); err != nil {
			return nil, fmt.Errorf("%s: %w", settings, err)
		}
	}
	return []int{number}, nil
}
