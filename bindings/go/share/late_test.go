package share

import (
	"net"
	"testing"
	"time"
)

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
