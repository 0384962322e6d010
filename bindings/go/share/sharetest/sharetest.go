// Package sharetest is a small share, for tests of programs that use one: the ring is what a test says, and the cache
// is a map.
package sharetest

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/rejoin-tls/rejoin-go/internal/wire"
)

// Share listens on Socket.
type Share struct {
	Socket string
	t      testing.TB

	lock     sync.Mutex
	listener net.Listener
	conns    map[net.Conn]bool
	keys     []map[string]any
	changed  chan struct{}
	sessions map[string][]byte
	afters   []string
	hints    map[string]float64
	stop     chan struct{}
}

// New starts a share that a test's end stops.
func New(t testing.TB) *Share {
	folder, err := os.MkdirTemp("", "share")
	if err != nil {
		t.Fatal(err)
	}
	s := &Share{
		Socket: filepath.Join(folder, "s"), t: t, conns: map[net.Conn]bool{}, changed: make(chan struct{}),
		sessions: map[string][]byte{}, hints: map[string]float64{},
	}
	t.Cleanup(func() {
		s.Stop()
		os.RemoveAll(folder)
	})
	s.Start()
	return s
}

// Start listens again after Stop.
func (s *Share) Start() {
	listener, err := net.Listen("unix", s.Socket)
	if err != nil {
		s.t.Fatal(err)
	}
	s.lock.Lock()
	s.listener = listener
	s.lock.Unlock()
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			s.lock.Lock()
			s.conns[conn] = true
			s.lock.Unlock()
			go s.serve(conn)
		}
	}()
}

// Stop ends all connections.
func (s *Share) Stop() {
	s.lock.Lock()
	defer s.lock.Unlock()
	s.listener.Close()
	for conn := range s.conns {
		conn.Close()
	}
	clear(s.conns)
}

// Freeze has the share answer nothing more, until the function that it returns is called.
func (s *Share) Freeze() func() {
	s.lock.Lock()
	return s.lock.Unlock
}

// Ring sets the keys: 32 bytes each, the one that encrypts first.
func (s *Share) Ring(keys ...[]byte) {
	s.lock.Lock()
	defer s.lock.Unlock()
	s.keys = nil
	for i, key := range keys {
		state := "opening"
		if i == 0 {
			state = "encrypting"
		}
		s.keys = append(s.keys, map[string]any{"key": key, "state": state, "new": true})
	}
	close(s.changed)
	s.changed = make(chan struct{})
}

// Damage changes a bit of each session.
func (s *Share) Damage() {
	s.lock.Lock()
	defer s.lock.Unlock()
	for _, session := range s.sessions {
		session[len(session)/2] ^= 1
	}
}

// Sessions returns how many are stored.
func (s *Share) Sessions() int {
	s.lock.Lock()
	defer s.lock.Unlock()
	return len(s.sessions)
}

// Afters returns the ids that sessions came after; "" where a session began a history.
func (s *Share) Afters() []string {
	s.lock.Lock()
	defer s.lock.Unlock()
	return append([]string(nil), s.afters...)
}

// Hints returns what was said of when clients return, in seconds.
func (s *Share) Hints() []float64 {
	s.lock.Lock()
	defer s.lock.Unlock()
	var said []float64
	for _, hint := range s.hints {
		said = append(said, hint)
	}
	return said
}

type first struct {
	Rejoin   int
	Keys     *struct{ Context, Form string }
	Sessions *struct{ Context string }
}

func (s *Share) serve(conn net.Conn) {
	defer conn.Close()
	from := bufio.NewReader(conn)
	var said first
	if wire.Read(from, &said, 128<<10) != nil || said.Rejoin != 1 {
		return
	}
	if said.Keys != nil {
		s.follow(conn)
		return
	}
	if s.answer(conn, map[string]any{"rejoin": 1, "sessions": map[string]any{"longest_session": 65535}}) != nil {
		return
	}
	for {
		var wanted map[string]json.RawMessage
		if wire.Read(from, &wanted, 128<<10) != nil || s.answer(conn, s.do(wanted)) != nil {
			return
		}
	}
}

func (s *Share) follow(conn net.Conn) {
	for {
		s.lock.Lock()
		keys, changed := s.keys, s.changed
		s.lock.Unlock()
		// As the real one, it waits until there is a ring.
		if keys != nil && s.answer(conn, map[string]any{"rejoin": 1, "keys": keys, "ticket_lifetime_s": 86400, "changes_in_s": 3540}) != nil {
			return
		}
		<-changed
	}
}

func (s *Share) answer(conn net.Conn, said any) error {
	message, err := wire.Append(nil, said, 256<<10)
	if err == nil {
		_, err = conn.Write(message)
	}
	return err
}

func (s *Share) do(wanted map[string]json.RawMessage) map[string]any {
	s.lock.Lock()
	defer s.lock.Unlock()
	for name, said := range wanted {
		switch name {
		case "take", "get":
			id := id(said)
			session, ok := s.sessions[id]
			if name == "take" {
				delete(s.sessions, id)
			}
			if !ok {
				return map[string]any{"session": nil}
			}
			return map[string]any{"session": session}
		case "put":
			var put struct {
				ID, Session, After []byte
				ReturnsIn          float64 `json:"returns_in_s"`
			}
			json.Unmarshal(said, &put)
			s.sessions[string(put.ID)] = put.Session
			s.afters = append(s.afters, string(put.After))
			if put.ReturnsIn != 0 {
				s.hints[string(put.ID)] = put.ReturnsIn
			}
			return map[string]any{"stored": true}
		case "hint":
			var hint struct {
				ID        []byte
				ReturnsIn float64 `json:"returns_in_s"`
			}
			json.Unmarshal(said, &hint)
			s.hints[string(hint.ID)] = hint.ReturnsIn
			return map[string]any{"hinted": true}
		}
	}
	return map[string]any{"error": map[string]string{"kind": "bad_request", "message": "?"}}
}

func id(said json.RawMessage) string {
	var text string
	json.Unmarshal(said, &text)
	bytes, _ := base64.StdEncoding.DecodeString(text)
	return string(bytes)
}
