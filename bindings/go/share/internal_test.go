package share

import (
	"io"
	"net"
	"testing"
	"time"

	"github.com/rejoin-tls/rejoin-go/internal/wire"
)

// reading is a connection that tells until when it reads.
type reading struct {
	net.Conn
	until time.Time
	told  chan time.Time
}

func (r *reading) SetDeadline(until time.Time) error {
	r.until = until
	return r.Conn.SetDeadline(until)
}

func (r *reading) Read([]byte) (int, error) {
	r.told <- r.until
	return 0, io.EOF
}

// A cluster's machine has no ring before it has reached Valkey.
func TestKeysAreWaitedForUntilThereIsARing(t *testing.T) {
	near, far := net.Pipe()
	defer near.Close()
	conn := &reading{Conn: near, told: make(chan time.Time, 1)}
	p, err := Options{Context: "shop"}.place()
	if err != nil {
		t.Fatal(err)
	}
	go p.lists(conn, Raw32, func(KeyList) {})
	var asked keysWanted
	if err := wire.Read(far, &asked, requestBytes); err != nil {
		t.Fatal(err)
	}
	if until := <-conn.told; !until.IsZero() {
		t.Errorf("it waits until %v", until)
	}
}

// A lookup may give up in the moment in which its answer comes.
func TestAShareThatHasAnsweredIsNotLate(t *testing.T) {
	conn, other := net.Pipe()
	defer other.Close()
	l := &link{
		conn: conn, queue: make(chan *request, 2), waiting: make(chan *request, 2), over: make(chan struct{}),
	}
	late := func() { l.since.Store(time.Now().Add(-2 * stalled).UnixNano()) }
	late()
	if !l.send(new(request)) || l.left.Load() {
		t.Fatal("a share that owes no answer is left")
	}
	// Now it owes one: write took it from the queue.
	l.waiting <- <-l.queue
	late()
	if l.send(new(request)) || !l.left.Load() {
		t.Error("a share that owes an answer is asked for another")
	}
}
