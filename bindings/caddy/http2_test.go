package caddy_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/net/http2"

	"github.com/rejoin-tls/rejoin-go/client"
)

// HTTP/2 over the manager's connections, as docs/go.md has it. It is here because rejoin-go has no dependencies.
func TestHTTP2ThroughTheManager(t *testing.T) {
	program := os.Getenv("REJOIN")
	if program == "" {
		t.Skip("REJOIN does not name the program `rejoin`")
	}
	s := newSite(t)
	folder, err := os.MkdirTemp("", "manager")
	if err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(folder, "s")
	command := exec.Command(program, "manager", "--socket", socket)
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		command.Process.Signal(syscall.SIGTERM)
		command.Wait()
		os.RemoveAll(folder)
	})
	until(t, "the manager listens", func() bool {
		conn, err := net.Dial("unix", socket)
		if err == nil {
			conn.Close()
		}
		return err == nil
	})
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(answer http.ResponseWriter, request *http.Request) {
		fmt.Fprintf(answer, "%s %v %s", request.Proto, request.TLS.DidResume, request.URL.Path)
	}))
	server.TLS, server.EnableHTTP2 = &tls.Config{Certificates: []tls.Certificate{s.cert}}, true
	server.StartTLS()
	defer server.Close()
	trusted, err := os.ReadFile(filepath.Join(s.folder, "cert.pem"))
	if err != nil {
		t.Fatal(err)
	}
	dialer := &client.Dialer{Manager: socket, Authorities: trusted, Protocols: []string{"h2"}, Indirect: true}
	_, port, _ := net.SplitHostPort(server.Listener.Addr().String())
	for i := range 2 {
		web := http.Client{Transport: &http2.Transport{
			DialTLSContext: func(ctx context.Context, network, address string, _ *tls.Config) (net.Conn, error) {
				return dialer.DialTLSContext(ctx, network, address)
			},
		}}
		for _, path := range []string{"/a", "/b"} {
			answer, err := web.Get("https://localhost:" + port + path)
			if err != nil {
				t.Fatal(err)
			}
			said, err := io.ReadAll(answer.Body)
			if wanted := fmt.Sprintf("HTTP/2.0 %v %s", i > 0, path); err != nil || string(said) != wanted {
				t.Errorf("%q %v", said, err)
			}
			answer.Body.Close()
		}
		web.CloseIdleConnections()
	}
}
