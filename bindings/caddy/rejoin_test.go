package caddy_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rejoin-tls/rejoin-go/share"
	"github.com/rejoin-tls/rejoin-go/share/sharetest"
	"github.com/rejoin-tls/rejoin-go/ticketkeys"
)

// The real Caddy, which TestMain builds, with its standard modules and ours.
var program string

var building = []string{"build"}

func TestMain(m *testing.M) {
	folder, err := os.MkdirTemp("", "caddy")
	if err != nil {
		panic(err)
	}
	program = filepath.Join(folder, "caddy")
	if said, err := exec.Command("go", append(building, "-o", program, "./cmd/caddy")...).CombinedOutput(); err != nil {
		panic(fmt.Sprintf("%v: %s", err, said))
	}
	code := m.Run()
	os.RemoveAll(folder)
	os.Exit(code)
}

type site struct {
	folder string
	cert   tls.Certificate
	pool   *x509.CertPool
}

func newSite(t *testing.T) *site {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "localhost"}, DNSNames: []string{"localhost"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	s := &site{t.TempDir(), tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, x509.NewCertPool()}
	s.pool.AddCert(parsed)
	s.write(t, "cert.pem", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	s.write(t, "key.pem", pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}))
	return s
}

func (s *site) write(t *testing.T, name string, said []byte) string {
	path := filepath.Join(s.folder, name)
	if err := os.WriteFile(path, said, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// client remembers sessions, and offers them to every port.
func (s *site) client(version uint16) *tls.Config {
	return &tls.Config{
		RootCAs: s.pool, ServerName: "localhost", MinVersion: version, MaxVersion: version,
		ClientSessionCache: tls.NewLRUClientSessionCache(8),
	}
}

func freePort(t *testing.T) int {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().(*net.TCPAddr).Port
}

func (s *site) caddyfile(t *testing.T, socket, option string, port, admin int) string {
	return s.write(t, fmt.Sprintf("Caddyfile%d", port), fmt.Appendf(nil, `{
	admin localhost:%d
	auto_https off
	skip_install_trust
	%s
}
https://localhost:%d {
	tls %s/cert.pem %s/key.pem
	respond "hello {http.request.tls.resumed}"
}
`, admin, strings.ReplaceAll(option, "SOCKET", socket), port, s.folder, s.folder))
}

type output struct {
	lock sync.Mutex
	said bytes.Buffer
}

func (o *output) Write(said []byte) (int, error) {
	o.lock.Lock()
	defer o.lock.Unlock()
	return o.said.Write(said)
}

func (o *output) String() string {
	o.lock.Lock()
	defer o.lock.Unlock()
	return o.said.String()
}

func (o *output) waitFor(t *testing.T, words string, times int) {
	t.Helper()
	for until := time.Now().Add(30 * time.Second); strings.Count(o.String(), words) < times; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(until) {
			t.Fatalf("Caddy did not say %q %d times: %s", words, times, o)
		}
	}
}

const option = "rejoin shop {\n\t\tsocket SOCKET\n\t}"

// caddy starts one, and returns its address, that of its administration, and what it says.
func (s *site) caddy(t *testing.T, socket, option string) (string, int, *output) {
	port, admin := freePort(t), freePort(t)
	command := exec.Command(program, "run", "--config", s.caddyfile(t, socket, option, port, admin), "--adapter", "rejoin")
	command.Env = append(os.Environ(), "HOME="+s.folder, "XDG_DATA_HOME="+s.folder, "XDG_CONFIG_HOME="+s.folder)
	said := new(output)
	command.Stderr = said
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		command.Process.Signal(syscall.SIGTERM)
		command.Wait()
		if strings.Contains(said.String(), "DATA RACE") {
			t.Error("a data race")
		}
		if t.Failed() {
			t.Logf("Caddy said: %s", said)
		}
	})
	said.waitFor(t, "serving initial configuration", 1)
	return fmt.Sprintf("127.0.0.1:%d", port), admin, said
}

func visit(t *testing.T, client *tls.Config, address string) bool {
	t.Helper()
	transport := &http.Transport{TLSClientConfig: client, DisableKeepAlives: true, DialTLSContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&tls.Dialer{Config: client}).DialContext(ctx, "tcp", address)
	}}
	answer, err := (&http.Client{Transport: transport, Timeout: 20 * time.Second}).Get("https://localhost/")
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	return answer.TLS.DidResume
}

func key(number byte) []byte { return bytes.Repeat([]byte{number}, 32) }

var versions = map[string]uint16{"1.2": tls.VersionTLS12, "1.3": tls.VersionTLS13}

// opens tells whether a server opens a ticket under this key.
func (s *site) opens(t *testing.T, address string, number byte) bool {
	t.Helper()
	var secret [32]byte
	copy(secret[:], key(number))
	config := &tls.Config{Certificates: []tls.Certificate{s.cert}}
	config.SetSessionTicketKeys([][32]byte{secret})
	return s.across(t, config, address)
}

// across tells whether a server opens a ticket that another, of this config, has made.
func (s *site) across(t *testing.T, config *tls.Config, address string) bool {
	t.Helper()
	listener, err := tls.Listen("tcp", "127.0.0.1:0", config)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	go http.Serve(listener, http.NotFoundHandler())
	client := s.client(tls.VersionTLS13)
	visit(t, client, listener.Addr().String())
	return visit(t, client, address)
}

// until waits for what is on its way to Caddy.
func until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !holds(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("in vain for 30 s: %s", what)
		}
	}
}

func TestCaddysAndAGoServerOpenEachOthersTickets(t *testing.T) {
	shared, s := sharetest.New(t), newSite(t)
	shared.Ring(key(1))
	one, _, _ := s.caddy(t, shared.Socket, option)
	two, _, _ := s.caddy(t, shared.Socket, option)
	config := &tls.Config{Certificates: []tls.Certificate{s.cert}}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	ring, err := ticketkeys.Follow(ctx, ticketkeys.Options{Options: share.Options{Socket: shared.Socket, Context: "shop"}}, config)
	if err != nil {
		t.Fatal(err)
	}
	<-ring.Ready()
	listener, err := tls.Listen("tcp", "127.0.0.1:0", config)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	go http.Serve(listener, http.NotFoundHandler())
	for name, version := range versions {
		client := s.client(version)
		for i, address := range []string{one, two, listener.Addr().String(), one} {
			if resumed := visit(t, client, address); resumed != (i > 0) {
				t.Errorf("TLS %s, visit %d: resumed %v", name, i, resumed)
			}
		}
	}
	// A new key encrypts, and the one before still opens.
	shared.Ring(key(2), key(1))
	until(t, "Caddy follows", func() bool { return s.opens(t, one, 2) && s.opens(t, two, 2) })
	if !s.opens(t, one, 1) {
		t.Error("the key before does not open")
	}
	shared.Ring(key(3))
	until(t, "Caddy forgets", func() bool { return s.opens(t, one, 3) && !s.opens(t, one, 1) })
}

func TestCaddyServesWithoutAShare(t *testing.T) {
	shared, s := sharetest.New(t), newSite(t)
	shared.Stop()
	address, _, said := s.caddy(t, shared.Socket, option)
	client := s.client(tls.VersionTLS13)
	if visit(t, client, address) || !visit(t, client, address) {
		t.Error("its own tickets do not resume")
	}
	said.waitFor(t, "rejoin share", 1)
	shared.Ring(key(1))
	shared.Start()
	until(t, "Caddy follows", func() bool { return s.opens(t, address, 1) })
	if !visit(t, client, address) {
		t.Error("a ticket from before does not open")
	}
	shared.Stop()
	if !s.opens(t, address, 1) {
		t.Error("the last keys are gone")
	}
}

func TestAReloadKeepsTheKeys(t *testing.T) {
	shared, s := sharetest.New(t), newSite(t)
	shared.Ring(key(1))
	address, admin, said := s.caddy(t, shared.Socket, option)
	client := s.client(tls.VersionTLS13)
	visit(t, client, address)
	shared.Stop()
	s.reload(t, shared.Socket, option+"\n\tgrace_period 1s", address, admin)
	said.waitFor(t, "load complete", 1)
	if !visit(t, client, address) || !s.opens(t, address, 1) {
		t.Error("the keys did not outlast the reload")
	}
	shared.Start()
	shared.Ring(key(2))
	until(t, "Caddy follows again", func() bool { return s.opens(t, address, 2) })
}

// reload gives a Caddy another configuration.
func (s *site) reload(t *testing.T, socket, option, address string, admin int) {
	t.Helper()
	var port int
	fmt.Sscanf(address, "127.0.0.1:%d", &port)
	path := s.caddyfile(t, socket, option, port, admin)
	if told, err := exec.Command(program, "reload", "--config", path, "--adapter", "rejoin", "--address", fmt.Sprintf("localhost:%d", admin)).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, told)
	}
}

func TestAReloadTakesTheMessagesToTheNewLog(t *testing.T) {
	shared, s := sharetest.New(t), newSite(t)
	shared.Ring(key(1))
	address, admin, first := s.caddy(t, shared.Socket, option)
	first.waitFor(t, "rejoin: the share gives ticket keys", 1)
	path := filepath.Join(s.folder, "log")
	s.reload(t, shared.Socket, option+"\n\tlog {\n\t\toutput file "+path+"\n\t}", address, admin)
	says := func(words string) func() bool {
		return func() bool {
			said, _ := os.ReadFile(path)
			return bytes.Contains(said, []byte(words))
		}
	}
	until(t, "the new log has the present state", says("rejoin: the share gives ticket keys"))
	shared.Stop()
	until(t, "the new log has a change", says("rejoin: no share at"))
	if strings.Contains(first.String(), "rejoin: no share at") {
		t.Error("the old log has it, too")
	}
	// What does not start leaves the log where it was.
	other := filepath.Join(s.folder, "other")
	refused := s.write(t, "refused.json", fmt.Appendf(nil, `{"admin":{"listen":"localhost:%d"},"logging":{"logs":{"default":{"writer":{"output":"file","filename":%q}}}},
"apps":{"tls":{"session_tickets":{"key_source":{"provider":"rejoin","context":"shop","socket":%q}}},
"http":{"servers":{"taken":{"listen":["192.0.2.1:1"]}}}}}`, admin, other, shared.Socket))
	if told, err := exec.Command(program, "reload", "--config", refused, "--address", fmt.Sprintf("localhost:%d", admin)).CombinedOutput(); err == nil {
		t.Fatalf("it started: %s", told)
	}
	before, _ := os.ReadFile(path)
	shared.Start()
	until(t, "the log has the next change", func() bool {
		said, _ := os.ReadFile(path)
		return bytes.Contains(said[len(before):], []byte("rejoin: the share gives ticket keys"))
	})
}

func TestTheCaddyfile(t *testing.T) {
	s := newSite(t)
	adapt := func(adapter, option string) (string, error) {
		path := s.caddyfile(t, "/run/x.sock", option, freePort(t), 2019)
		said, err := exec.Command(program, "adapt", "--config", path, "--adapter", adapter, "--validate").CombinedOutput()
		return string(said), err
	}
	said, err := adapt("rejoin", "rejoin shop {\n\t\tsocket SOCKET\n\t\tuser root\n\t}")
	if err != nil {
		t.Fatal(said)
	}
	var config struct {
		Apps struct {
			Rejoin any
			TLS    struct {
				Certificates   any
				SessionTickets struct {
					Source map[string]string `json:"key_source"`
				} `json:"session_tickets"`
			}
		}
	}
	for _, line := range strings.Split(said, "\n") {
		if strings.HasPrefix(line, `{"apps"`) || strings.HasPrefix(line, `{"admin"`) {
			if err := json.Unmarshal([]byte(line), &config); err != nil {
				t.Fatal(err)
			}
		}
	}
	source := fmt.Sprint(config.Apps.TLS.SessionTickets.Source)
	if source != "map[context:shop provider:rejoin socket:/run/x.sock user:root]" || config.Apps.Rejoin != nil || config.Apps.TLS.Certificates == nil {
		t.Errorf("%s: %s", source, said)
	}
	for adapter, wrong := range map[string]struct{ option, wanted string }{
		"caddyfile": {"rejoin", "--adapter rejoin"},
		"rejoin":    {"rejoin {\n\t\tkey secret\n\t}", "socket and user"},
	} {
		if said, err := adapt(adapter, wrong.option); err == nil || !strings.Contains(said, wrong.wanted) {
			t.Errorf("%v: %s", err, said)
		}
	}
	if said, err := adapt("rejoin", ""); err != nil {
		t.Errorf("without the option: %s", said)
	}
}

func TestTheRealShare(t *testing.T) {
	real, s := sharetest.NewReal(t), newSite(t)
	one, _, _ := s.caddy(t, real.Socket, option)
	two, _, _ := s.caddy(t, real.Socket, option)
	client := s.client(tls.VersionTLS13)
	if visit(t, client, one) || !visit(t, client, two) {
		t.Error("not resumed at the other")
	}
	real.Run("keys", "rotate", "web")
	if !visit(t, client, one) || !visit(t, client, two) {
		t.Error("not resumed after a rotation")
	}
}
