package client_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rejoin-tls/rejoin-go/client"
	"github.com/rejoin-tls/rejoin-go/internal/testtls"
	"github.com/rejoin-tls/rejoin-go/internal/wire"
)

func folder(t *testing.T) string {
	folder, err := os.MkdirTemp("", "client")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(folder) })
	return folder
}

// says is a manager that answers with these words, or not at all, and then with plaintext.
func says(t *testing.T, connect, plaintext, end string) string {
	socket := filepath.Join(folder(t), "s")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	serve := func(conn net.Conn) {
		defer conn.Close()
		var asked map[string]any
		if wire.Read(conn, &asked, 1<<20) != nil {
			return
		}
		words, behind := connect, plaintext
		if asked["end"] != nil {
			words, behind = end, ""
		}
		if words == "" {
			conn.Read(make([]byte, 1))
			return
		}
		conn.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(words))), words+behind...))
		// What the client still writes must not fail.
		conn.(*net.UnixConn).CloseWrite()
		io.Copy(io.Discard, conn)
	}
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go serve(conn)
		}
	}()
	return socket
}

const connected = `{"rejoin": 1, "connected": {"connection": "6f0c", "resumed": true, "why": "resumed", "version": "TLSv1.3",
 "cipher": "TLS13_AES_256_GCM_SHA384", "peer": "192.0.2.1:443", "early_data": "not_offered", "chain": [], "more": 1}}`

// web is a server over TLS that says hello.
func web(t *testing.T) (*testtls.Authority, string) {
	authority := testtls.NewAuthority(t, "test")
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(answer http.ResponseWriter, request *http.Request) {
		fmt.Fprintf(answer, "hello %v", request.TLS.DidResume)
	}))
	server.TLS = &tls.Config{Certificates: []tls.Certificate{authority.Issue(t, "localhost")}}
	server.EnableHTTP2 = true
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	t.Cleanup(server.Close)
	return authority, server.Listener.Addr().String()
}

func get(dialer *client.Dialer, address string) (string, error) {
	transport := &http.Transport{DialTLSContext: dialer.DialTLSContext, DisableKeepAlives: true}
	// A manager that answers nothing is left in a third of this.
	answer, err := (&http.Client{Transport: transport, Timeout: 9 * time.Second}).Get("https://" + address)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	said, err := io.ReadAll(answer.Body)
	return answer.Proto + " " + string(said), err
}

func TestWithoutAManagerItConnectsDirectly(t *testing.T) {
	authority, address := web(t)
	refusal := func(kind string) string {
		return `{"rejoin": 1, "error": {"kind": "` + kind + `", "detail": "so", "remedy": ""}}`
	}
	for name, manager := range map[string]string{
		"nowhere":       filepath.Join(folder(t), "nowhere"),
		"busy":          says(t, refusal("busy"), "", ""),
		"shutting_down": says(t, refusal("shutting_down"), "", ""),
		"not_permitted": says(t, refusal("not_permitted"), "", ""),
		"version":       says(t, refusal("unsupported_version"), "", ""),
		"bad_request":   says(t, refusal("bad_request"), "", ""),
		"timeout":       says(t, refusal("timeout"), "", ""),
		"nonsense":      says(t, "{}", "", ""),
		"silent":        says(t, "", "", ""),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			said, err := get(&client.Dialer{Manager: manager, Authorities: authority.PEM()}, address)
			if err != nil || said != "HTTP/1.1 hello false" {
				t.Error(said, err)
			}
			if _, err := get(&client.Dialer{Manager: manager, Authorities: authority.PEM(), Indirect: true}, address); err == nil {
				t.Error("it connected directly")
			}
			// It trusts directly whom the manager would have trusted.
			if _, err := get(&client.Dialer{Manager: manager}, address); err == nil || !strings.Contains(err.Error(), "unknown authority") {
				t.Error(err)
			}
		})
	}
}

func TestTheServersErrorsAreFinal(t *testing.T) {
	authority, address := web(t)
	manager := says(t, `{"rejoin": 1, "error": {"kind": "certificate_expired", "detail": "expired", "remedy": "renew it"}}`, "", "")
	_, err := get(&client.Dialer{Manager: manager, Authorities: authority.PEM()}, address)
	var said *client.Error
	if !errors.As(err, &said) || said.Kind != "certificate_expired" || said.Error() != "expired; renew it" {
		t.Error(err)
	}
}

func TestATimeThatTheProgramNamesIsFinal(t *testing.T) {
	authority, address := web(t)
	manager := says(t, `{"rejoin": 1, "error": {"kind": "timeout", "detail": "late", "remedy": ""}}`, "", "")
	_, err := get(&client.Dialer{Manager: manager, Authorities: authority.PEM(), Timeout: time.Second}, address)
	var said *client.Error
	if !errors.As(err, &said) || !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
}

func TestARequestThatIsTooLargeGoesDirectly(t *testing.T) {
	authority, address := web(t)
	pem := append(authority.PEM(), bytes.Repeat([]byte("# more\n"), 40_000)...)
	said, err := get(&client.Dialer{Manager: says(t, connected, "", ""), Authorities: pem}, address)
	if err != nil || said != "HTTP/1.1 hello false" {
		t.Error(said, err)
	}
}

// The environment is read once, by crypto/x509: the test's program runs again.
func TestTheEnvironmentsAuthoritiesAreTrustedAsWithoutAManager(t *testing.T) {
	if address := os.Getenv("REJOIN_TEST_ADDRESS"); address != "" {
		said, err := get(&client.Dialer{Manager: os.Getenv("REJOIN_TEST_MANAGER")}, address)
		fmt.Println("said:", said, err)
		return
	}
	authority, address := web(t)
	file := filepath.Join(folder(t), "authority.pem")
	if err := os.WriteFile(file, authority.PEM(), 0o600); err != nil {
		t.Fatal(err)
	}
	refuses := says(t, `{"rejoin": 1, "error": {"kind": "certificate_unknown_issuer", "detail": "no", "remedy": ""}}`, "", "")
	accepts := says(t, connected, "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nyes", `{"rejoin": 1, "end": "clean"}`)
	for _, c := range []struct{ variable, value, manager, wanted string }{
		{"SSL_CERT_FILE", file, refuses, "HTTP/1.1 hello false"},
		{"SSL_CERT_DIR", filepath.Dir(file), refuses, "HTTP/1.1 hello false"},
		{"SSL_CERT_FILE", os.Args[0], accepts, "unknown authority"},
		{"SSL_CERT_DIR", "/etc/ssl/certs:" + folder(t), accepts, "unknown authority"},
		{"SSL_CERT_FILE", "/etc/ssl/certs/ca-certificates.crt", accepts, "yes"},
		{"SSL_CERT_DIR", "", accepts, "yes"},
	} {
		command := exec.Command(os.Args[0], "-test.run", "^"+t.Name()+"$")
		command.Env = append(os.Environ(), c.variable+"="+c.value, "REJOIN_TEST_ADDRESS="+address, "REJOIN_TEST_MANAGER="+c.manager)
		if said, _ := command.CombinedOutput(); !strings.Contains(string(said), c.wanted) {
			t.Errorf("%+v: %s", c, said)
		}
	}
	t.Setenv("SSL_CERT_FILE", file)
	if _, err := get(&client.Dialer{Manager: accepts, Indirect: true}, address); err == nil || !strings.Contains(err.Error(), "SSL_CERT_FILE") {
		t.Error(err)
	}
}

func TestTheNetworkIsFollowed(t *testing.T) {
	dialer := &client.Dialer{Manager: says(t, connected, "", ""), Indirect: true}
	for network, works := range map[string]bool{"tcp": true, "tcp4": true, "tcp6": false} {
		conn, err := dialer.DialTLSContext(context.Background(), network, "127.0.0.1:443")
		if (err == nil) != works {
			t.Error(network, err)
		}
		if err == nil {
			conn.Close()
		}
	}
}

func TestATruncationIsAnError(t *testing.T) {
	for end, wanted := range map[string]error{
		`{"rejoin": 1, "end": "clean"}`:     nil,
		`{"rejoin": 1, "end": "truncated"}`: io.ErrUnexpectedEOF,
		`{"rejoin": 1, "end": "unknown"}`:   client.ErrTruncated,
		`{}`:                                client.ErrTruncated,
	} {
		dialer := &client.Dialer{Manager: says(t, connected, "plaintext", end)}
		conn, err := dialer.DialTLSContext(context.Background(), "tcp", "example.com:https")
		if err != nil {
			t.Fatal(err)
		}
		said, err := io.ReadAll(conn)
		if string(said) != "plaintext" || !errors.Is(err, wanted) || conn.RemoteAddr().String() != "192.0.2.1:443" {
			t.Errorf("%s: %q %v", end, said, err)
		}
		if session := conn.(*client.Conn).Session; !session.Resumed || session.Why != "resumed" {
			t.Errorf("%+v", session)
		}
		conn.Close()
	}
}

func TestAContextThatEndsIsItsOwnError(t *testing.T) {
	dialer := &client.Dialer{Manager: says(t, "", "", "")}
	reason := errors.New("enough")
	cancelled, cancel := context.WithCancelCause(context.Background())
	time.AfterFunc(50*time.Millisecond, func() { cancel(reason) })
	_, err := dialer.DialTLSContext(cancelled, "tcp", "example.com:443")
	if !errors.Is(err, context.Canceled) || !errors.Is(err, reason) {
		t.Error(err)
	}
	late, done := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer done()
	_, err = dialer.DialTLSContext(late, "tcp", "example.com:443")
	var said net.Error
	if !errors.Is(err, context.DeadlineExceeded) || !errors.As(err, &said) || !said.Timeout() {
		t.Error(err)
	}
}

// heard is a connection that keeps what came over it.
type heard struct {
	net.Conn
	kept bytes.Buffer
}

func (h *heard) Read(into []byte) (int, error) {
	count, err := h.Conn.Read(into)
	h.kept.Write(into[:count])
	return count, err
}

// lastRecord is the type of the last record of TLS.
func (h *heard) lastRecord() (last byte) {
	for said := h.kept.Bytes(); len(said) >= 5; {
		last = said[0]
		said = said[min(len(said), 5+int(binary.BigEndian.Uint16(said[3:]))):]
	}
	return last
}

// ends is a server over TLS that tells how much each of its clients sent, and by which type of record it ended.
func ends(t *testing.T, authority *testtls.Authority) (string, <-chan string) {
	// crypto/tls takes an end of file for a close_notify. Before TLS 1.3 an alert can be seen.
	config := &tls.Config{Certificates: []tls.Certificate{authority.Issue(t, "localhost")}, MaxVersion: tls.VersionTLS12}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	told := make(chan string, 100)
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				raw := &heard{Conn: conn}
				count, _ := io.Copy(io.Discard, tls.Server(raw, config))
				told <- fmt.Sprint(count, " ", raw.lastRecord())
			}()
		}
	}()
	return listener.Addr().String(), told
}

// everyUploadEnds lets a hundred connections write and close.
func everyUploadEnds(t *testing.T, dialer *client.Dialer, authority *testtls.Authority) {
	address, told := ends(t, authority)
	for range 100 {
		conn, err := dialer.DialTLSContext(context.Background(), "tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Write(make([]byte, 1000)); err != nil {
			t.Fatal(err)
		}
		if err := conn.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
			t.Fatal(err)
		}
		if err := conn.Close(); !errors.Is(err, net.ErrClosed) {
			t.Fatal(err)
		}
	}
	for range 100 {
		select {
		case end := <-told:
			if end != "1000 21" {
				t.Error(end)
			}
		case <-time.After(20 * time.Second):
			t.Fatal("a server still waits")
		}
	}
}

// curl gets a page through the manager, as the program that it is.
func curl(t *testing.T, program, library, socket string, authority *testtls.Authority, address string) (string, error) {
	file := filepath.Join(folder(t), "authority.pem")
	if err := os.WriteFile(file, authority.PEM(), 0o600); err != nil {
		t.Fatal(err)
	}
	command := exec.Command(program, "run", "--client", "--library", library, "--manager", socket, "--",
		"curl", "-sS", "--http1.1", "--cacert", file, "https://"+address)
	command.Env = append(os.Environ(), "REJOIN_PATIENCE_MS=10000", "REJOIN_DEBUG=1")
	var said bytes.Buffer
	command.Stderr = &said
	answer, err := command.Output()
	t.Logf("curl said: %s", said.Bytes())
	return string(answer), err
}

func TestTheRealManager(t *testing.T) {
	program := os.Getenv("REJOIN")
	if program == "" {
		t.Skip("REJOIN does not name the program `rejoin`")
	}
	socket := filepath.Join(folder(t), "s")
	command := exec.Command(program, "manager", "--socket", socket)
	var said bytes.Buffer
	command.Stderr = &said
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		command.Process.Signal(syscall.SIGTERM)
		command.Wait()
		if t.Failed() {
			t.Logf("the manager said: %s", said.Bytes())
		}
	})
	for until := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		if conn, err := net.Dial("unix", socket); err == nil {
			conn.Close()
			break
		}
		if time.Now().After(until) {
			t.Fatalf("the manager does not listen: %s", said.Bytes())
		}
	}
	authority, address := web(t)
	dialer := &client.Dialer{Manager: socket, Authorities: authority.PEM(), Indirect: true}
	for i := range 3 {
		answer, err := get(dialer, address)
		if wanted := fmt.Sprintf("HTTP/1.1 hello %v", i > 0); err != nil || answer != wanted {
			t.Errorf("%d: %q %v", i, answer, err)
		}
	}
	if library := os.Getenv("REJOIN_LIBRARY"); library == "" {
		t.Log("NOT TESTED with curl: REJOIN_LIBRARY does not name `librejoin.so`")
	} else if answer, err := curl(t, program, library, socket, authority, address); err != nil || answer != "hello true" {
		t.Errorf("curl: %q %v", answer, err)
	}
	everyUploadEnds(t, dialer, authority)
	// The manager, and not this program, refuses who is not trusted.
	_, err := get(&client.Dialer{Manager: socket}, address)
	var refusal *client.Error
	if !errors.As(err, &refusal) || refusal.Kind != "certificate_unknown_issuer" {
		t.Error(err)
	}
	dialer.Protocols = []string{"h2"}
	conn, err := dialer.DialTLSContext(context.Background(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if session := conn.(*client.Conn).Session; session.Protocol != "h2" || len(session.Chain) != 1 || len(session.Chain[0].DER) == 0 {
		t.Errorf("%+v", session)
	}
}
