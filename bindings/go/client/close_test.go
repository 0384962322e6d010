package client_test

import (
	"context"
	"encoding/binary"
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/rejoin-tls/rejoin-go/client"
	"github.com/rejoin-tls/rejoin-go/internal/wire"
)

// A Read waits all the time, as that of http.Transport does.
func TestACloseDoesNotWaitForTheServer(t *testing.T) {
	socket := filepath.Join(folder(t), "m.sock")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	conns := make(chan net.Conn, 1)
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			var asked map[string]any
			if wire.Read(conn, &asked, 1<<20) != nil {
				return
			}
			conn.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(connected))), connected...))
			conns <- conn
		}
	}()
	for i := range 2000 {
		conn, err := (&client.Dialer{Manager: socket}).DialTLSContext(context.Background(), "tcp", "example.com:443")
		if err != nil {
			t.Fatal(err)
		}
		manager := <-conns
		go func() {
			for buffer := make([]byte, 64); ; {
				if _, err := conn.Read(buffer); err != nil {
					return
				}
			}
		}()
		go func() {
			for since := time.Now(); time.Since(since) < time.Duration(i%40)*time.Microsecond; {
			}
			manager.Write([]byte("x"))
		}()
		closed := make(chan error, 1)
		go func() { closed <- conn.Close() }()
		select {
		case <-closed:
		case <-time.After(8 * time.Second):
			t.Fatalf("close %d hangs", i)
		}
		manager.Close()
	}
}
