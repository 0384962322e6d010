package share

import (
	"bufio"
	"context"
	"errors"
	"net"
	"sync/atomic"
	"time"

	"github.com/rejoin-tls/rejoin-go/internal/wire"
)

const (
	queued      = 256
	outstanding = 1024
	idBytes     = 32
	// A share that has answered nothing for so long is left, and asked again later.
	stalled = time.Second
	// In base64, with the rest of the request, a session fits into it.
	sendable = (requestBytes - 1024) / 4 * 3
	// Wait is how long a lookup waits unless it is told otherwise.
	Wait = 50 * time.Millisecond
)

// Sessions is a cache of sessions, in the share. Many goroutines may use it. No method waits for a share that is
// away, and none waits longer than it is told.
type Sessions struct {
	now   atomic.Pointer[link]
	ready chan struct{}
	p     *place
}

// OpenSessions connects to the share, in the background, until the context ends. It fails only if the options are
// wrong.
func OpenSessions(ctx context.Context, options Options) (*Sessions, error) {
	p, err := options.place()
	if err != nil {
		return nil, err
	}
	s := &Sessions{ready: make(chan struct{}), p: p}
	go p.keepOn(ctx, s.serve)
	return s, nil
}

// Ready is closed when the share has answered for the first time.
func (s *Sessions) Ready() <-chan struct{} { return s.ready }

// Found is a session, and where it was found: Put wants to know.
type Found struct {
	Session []byte
	id      []byte
	on      *link
}

// Take returns a session, and removes it: it is used once. It returns nil if there is none, or if the share has not
// answered in time.
func (s *Sessions) Take(id []byte, wait time.Duration) *Found {
	return s.find(request{Take: id}, id, wait)
}

// Get returns a session, which stays.
func (s *Sessions) Get(id []byte, wait time.Duration) *Found {
	return s.find(request{Get: id}, id, wait)
}

func (s *Sessions) find(wanted request, id []byte, wait time.Duration) *Found {
	l := s.now.Load()
	if l == nil || !known(id) {
		return nil
	}
	session := l.find(wanted, wait)
	if session == nil {
		return nil
	}
	return &Found{Session: session, id: id, on: l}
}

// Stored is a session to put.
type Stored struct {
	// ID is 1 to 32 bytes, chosen at random, and never used for two sessions.
	ID      []byte
	Session []byte
	// Lifetime is a second to seven days.
	Lifetime time.Duration
	// After is the session that this connection resumed, if any: its client's history goes on.
	After *Found
	// Resumed is true if this connection resumed a session, also if After is not known.
	Resumed bool
	// ReturnsIn says when the client comes back, if the application knows.
	ReturnsIn time.Duration
}

// Put sends a session to the share, and does not wait for it. It returns false if the share cannot be reached, or has
// too much to do, or the session is too long: then the share does not keep it. One that is too long is sent all the same,
// as far as a message can hold it, because the share counts it.
func (s *Sessions) Put(stored Stored) bool {
	l := s.now.Load()
	if l == nil || !known(stored.ID) || len(stored.Session) == 0 || len(stored.Session) > sendable {
		return false
	}
	put := &putRequest{ID: stored.ID, Session: stored.Session, Lifetime: wholeSeconds(stored.Lifetime)}
	if stored.After != nil && stored.After.on == l {
		put.After = stored.After.id
	}
	// Shares of earlier versions refuse what they do not know.
	if l.TakesResumed {
		resumed := stored.Resumed || stored.After != nil
		put.Resumed = &resumed
	}
	if stored.ReturnsIn > 0 {
		put.ReturnsIn = inSeconds(stored.ReturnsIn)
	}
	return l.send(&request{Put: put}) && len(stored.Session) <= l.Longest
}

// Hint says when the client of a stored session comes back. It returns false if the share cannot be reached.
func (s *Sessions) Hint(id []byte, returnsIn time.Duration) bool {
	l := s.now.Load()
	if l == nil || !known(id) {
		return false
	}
	return l.send(&request{Hint: &hintRequest{ID: id, ReturnsIn: inSeconds(returnsIn)}})
}

// Remove forgets a session. It returns false if the share cannot be reached.
func (s *Sessions) Remove(id []byte) bool {
	l := s.now.Load()
	return l != nil && known(id) && l.send(&request{Remove: id})
}

func known(id []byte) bool { return len(id) > 0 && len(id) <= idBytes }

func wholeSeconds(duration time.Duration) int64 {
	return max(1, min(int64((duration+time.Second/2)/time.Second), lifetimeAtMost))
}

func inSeconds(duration time.Duration) float64 {
	return max(0.001, min(duration.Seconds(), lifetimeAtMost))
}

type request struct {
	Take   []byte       `json:"take,omitempty"`
	Get    []byte       `json:"get,omitempty"`
	Put    *putRequest  `json:"put,omitempty"`
	Hint   *hintRequest `json:"hint,omitempty"`
	Remove []byte       `json:"remove,omitempty"`

	found chan []byte
}

type putRequest struct {
	ID        []byte  `json:"id"`
	Session   []byte  `json:"session"`
	Lifetime  int64   `json:"lifetime_s"`
	After     []byte  `json:"after,omitempty"`
	Resumed   *bool   `json:"resumed,omitempty"`
	ReturnsIn float64 `json:"returns_in_s,omitempty"`
}

type hintRequest struct {
	ID        []byte  `json:"id"`
	ReturnsIn float64 `json:"returns_in_s"`
}

type answer struct {
	opening
	Session []byte `json:"session"`
}

// link is one connection to the share.
type link struct {
	greeting
	queue   chan *request
	waiting chan *request
	over    chan struct{}
	conn    net.Conn
	// since is when the share began to be late, in Unix nanoseconds, and zero while it is not.
	since atomic.Int64
	left  atomic.Bool
}

func (s *Sessions) serve(ctx context.Context, conn *net.UnixConn) error {
	from := bufio.NewReader(conn)
	greeted, err := greet(conn, from, s.p.Context)
	if err != nil {
		return err
	}
	l := &link{
		greeting: greeted, conn: conn,
		queue: make(chan *request, queued), waiting: make(chan *request, outstanding), over: make(chan struct{}),
	}
	written := make(chan struct{})
	go func() {
		defer close(written)
		l.write()
	}()
	s.p.tell(nil)
	s.now.Store(l)
	select {
	case <-s.ready:
	default:
		close(s.ready)
	}
	err = l.read(from)
	if l.left.Load() {
		err = errStalled
	}
	s.now.Store(nil)
	close(l.over)
	conn.Close()
	<-written
	return err
}

// greeting is what a share says of itself.
type greeting struct {
	Longest      int  `json:"longest_session"`
	TakesResumed bool `json:"takes_resumed"`
}

func greet(conn net.Conn, from *bufio.Reader, name string) (greeting, error) {
	var wanted struct {
		Rejoin   int `json:"rejoin"`
		Sessions struct {
			Context string `json:"context"`
		} `json:"sessions"`
	}
	wanted.Rejoin, wanted.Sessions.Context = wire.Version, name
	if err := begin(conn, wanted); err != nil {
		return greeting{}, err
	}
	var said struct {
		opening
		Sessions *greeting `json:"sessions"`
	}
	if err := wire.Read(from, &said, answerBytes); err != nil {
		return greeting{}, err
	}
	if err := said.check(); err != nil {
		return greeting{}, err
	}
	if said.Sessions == nil || said.Sessions.Longest < 1 {
		return greeting{}, errAnswer
	}
	return *said.Sessions, conn.SetDeadline(time.Time{})
}

// find sends a lookup, and waits for its answer.
func (l *link) find(wanted request, wait time.Duration) []byte {
	wanted.found = make(chan []byte, 1)
	if !l.send(&wanted) {
		return nil
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case session := <-wanted.found:
		return session
	case <-l.over:
	case <-timer.C:
		l.late()
	}
	return nil
}

// send puts a request into the queue, if the share keeps up.
func (l *link) send(wanted *request) bool {
	if since := l.since.Load(); since != 0 && !l.isOwed() {
		// The answer came in the moment in which somebody gave it up.
		l.since.CompareAndSwap(since, 0)
	} else if since != 0 {
		if time.Since(time.Unix(0, since)) > stalled {
			l.left.Store(true)
			l.conn.Close()
		}
		return false
	}
	select {
	case <-l.over:
		return false
	default:
	}
	select {
	case l.queue <- wanted:
		return true
	default:
		l.late()
		return false
	}
}

// isOwed is true if the share has not answered everything.
func (l *link) isOwed() bool { return len(l.queue) > 0 || len(l.waiting) > 0 }

func (l *link) late() { l.since.CompareAndSwap(0, time.Now().UnixNano()) }

// write sends what is in the queue, in as few calls as possible.
func (l *link) write() {
	var buffer []byte
	for {
		select {
		case <-l.over:
			return
		case wanted := <-l.queue:
			buffer = l.append(buffer[:0], wanted)
		}
		for more := true; more && len(buffer) < requestBytes; {
			select {
			case wanted := <-l.queue:
				buffer = l.append(buffer, wanted)
			default:
				more = false
			}
		}
		if _, err := l.conn.Write(buffer); err != nil {
			l.conn.Close()
			return
		}
	}
}

func (l *link) append(buffer []byte, wanted *request) []byte {
	longer, err := wire.Append(buffer, wanted, requestBytes)
	if err != nil {
		return buffer
	}
	select {
	case l.waiting <- wanted:
		return longer
	case <-l.over:
		return buffer
	}
}

var (
	errUnasked = errors.New("it answers what nobody asked")
	errStalled = errors.New("it has answered nothing for a second")
)

// read gives each answer to its request, until the connection ends.
func (l *link) read(from *bufio.Reader) error {
	for {
		var said answer
		if err := wire.Read(from, &said, answerBytes); err != nil {
			return err
		}
		if said.Error != nil {
			return said.Error
		}
		select {
		case wanted := <-l.waiting:
			l.since.Store(0)
			if wanted.found != nil {
				wanted.found <- said.Session
			}
		default:
			return errUnasked
		}
	}
}
