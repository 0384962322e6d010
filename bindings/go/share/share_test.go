package share_test

import (
	"bytes"
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rejoin-tls/rejoin-go/internal/wire"
	"github.com/rejoin-tls/rejoin-go/share"
	"github.com/rejoin-tls/rejoin-go/share/sharetest"
)

func folder(t *testing.T) string {
	folder, err := os.MkdirTemp("", "share")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(folder) })
	return folder
}

// says answers each first message with these words, and returns where.
func says(t *testing.T, words string) string {
	socket := filepath.Join(folder(t), "s")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			var ignored map[string]any
			wire.Read(conn, &ignored, 1<<20)
			conn.Write([]byte{0, 0, byte(len(words) >> 8), byte(len(words))})
			conn.Write([]byte(words))
			conn.Close()
		}
	}()
	return socket
}

// refusal is what a program hears of a share.
func refusal(t *testing.T, socket string) error {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	heard := make(chan error, 1)
	options := share.Options{Socket: socket, Context: "shop", Report: func(err error) {
		select {
		case heard <- err:
		default:
		}
	}}
	go share.FollowKeys(ctx, options, share.Raw32, func(share.KeyList) {})
	return <-heard
}

func TestAnswersAreChecked(t *testing.T) {
	key := `{"key": "` + strings.Repeat("A", 43) + `=", "state": "encrypting"}`
	for words, wanted := range map[string]string{
		`{"rejoin": 1, "keys": [` + key + `], "ticket_lifetime_s": 86400, "more": 1}`:                               "",
		`{"rejoin": 1, "keys": [], "ticket_lifetime_s": 86400}`:                                                     "0 keys",
		`{"rejoin": 1, "keys": [` + strings.Repeat(key+",", 16) + key + `], "ticket_lifetime_s": 86400}`:            "17 keys",
		`{"rejoin": 1, "keys": [` + key + `], "ticket_lifetime_s": 0}`:                                              "tickets for 0 seconds",
		`{"rejoin": 1, "keys": [` + key + `], "ticket_lifetime_s": 604801}`:                                         "tickets for 604801 seconds",
		`{"rejoin": 1, "keys": [{"key": "AAAA", "state": "encrypting"}], "ticket_lifetime_s": 86400}`:               "a key of 3 bytes",
		`{"rejoin": 1, "keys": [` + strings.Replace(key, "encrypting", "opening", 1) + `], "ticket_lifetime_s": 1}`: "does not encrypt",
		`{"rejoin": 2}`: "version 2",
		`{"rejoin": 1, "error": {"kind": "busy", "message": "there are 256 connections"}}`: "there are 256 connections",
		`[]`: "cannot unmarshal",
	} {
		err := refusal(t, says(t, words))
		if wanted == "" {
			if err != nil {
				t.Errorf("%s: %v", words, err)
			}
		} else if err == nil || !strings.Contains(err.Error(), wanted) {
			t.Errorf("%s: %v", words, err)
		}
	}
}

func TestNobodyElseIsBelieved(t *testing.T) {
	open := folder(t)
	if err := os.Chmod(open, 0o777); err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("unix", filepath.Join(open, "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	said := make(chan int, 1)
	go func() {
		if conn, err := listener.Accept(); err == nil {
			count, _ := conn.Read(make([]byte, 100))
			said <- count
		}
	}()
	if err := refusal(t, filepath.Join(open, "s")); !errors.Is(err, wire.ErrNotBelieved) {
		t.Error(err)
	}
	if count := <-said; count != 0 {
		t.Errorf("%d bytes were said", count)
	}
}

func TestAMissingShareIsNamed(t *testing.T) {
	socket := filepath.Join(folder(t), "nowhere")
	err := refusal(t, socket)
	if err == nil || !strings.Contains(err.Error(), socket) || !strings.Contains(err.Error(), "rejoin share") {
		t.Error(err)
	}
}

func TestKeysAreNotPrinted(t *testing.T) {
	key := share.Key{Secret: []byte("secret"), State: share.Encrypting}
	for _, said := range []string{key.String(), key.GoString()} {
		if strings.Contains(said, "secret") || strings.Contains(said, "115") {
			t.Error(said)
		}
	}
}

func TestTheRealShare(t *testing.T) {
	real := sharetest.NewReal(t)
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	lists := make(chan share.KeyList, 8)
	options := share.Options{Socket: real.Socket, Context: "shop"}
	go share.FollowKeys(ctx, options, share.Raw32, func(list share.KeyList) { lists <- list })
	first := <-lists
	real.Run("keys", "rotate", "web")
	second := <-lists
	if bytes.Equal(first.Keys[0].Secret, second.Keys[0].Secret) && len(second.Keys) == len(first.Keys) {
		t.Error("nothing has changed")
	}
	sessions, err := share.OpenSessions(ctx, options)
	if err != nil {
		t.Fatal(err)
	}
	<-sessions.Ready()
	one, two := []byte("one"), []byte("two")
	patience := 10 * time.Second
	if !sessions.Put(share.Stored{ID: one, Session: []byte("session"), Lifetime: time.Hour, ReturnsIn: time.Minute}) {
		t.Fatal("not stored")
	}
	found := sessions.Get(one, patience)
	if found == nil || string(found.Session) != "session" {
		t.Fatalf("%v", found)
	}
	sessions.Put(share.Stored{ID: two, Session: bytes.Repeat([]byte{7}, 3000), Lifetime: time.Hour, After: found})
	if found := sessions.Take(two, patience); found == nil || len(found.Session) != 3000 {
		t.Fatal("not found")
	}
	if sessions.Take(two, patience) != nil {
		t.Error("taken twice")
	}
	sessions.Hint(one, 90*time.Second)
	sessions.Remove(one)
	if sessions.Get(one, patience) != nil {
		t.Error("not removed")
	}
	if sessions.Put(share.Stored{ID: one, Session: make([]byte, 200_000), Lifetime: time.Hour}) {
		t.Error("a session of 200 kB")
	}
	// The share does not keep it, and counts it.
	if sessions.Put(share.Stored{ID: one, Session: make([]byte, 90_000), Lifetime: time.Hour}) {
		t.Error("a session of 90 kB")
	}
	if sessions.Get(one, patience) != nil {
		t.Error("it is kept")
	}
	// Such as the next session of a client whose last one is not known.
	three := []byte("three")
	sessions.Put(share.Stored{ID: three, Session: []byte("session"), Lifetime: time.Hour, Resumed: true})
	if sessions.Get(three, patience) == nil {
		t.Error("not kept")
	}
	stats := real.Run("stats", "web", "--json")
	for _, count := range []string{`"refused_too_large":1,`, `"full_handshakes":2,`} {
		if !strings.Contains(stats, count) {
			t.Error(count, stats)
		}
	}
}
