package sessions_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/rejoin-tls/rejoin-go/internal/testtls"
	"github.com/rejoin-tls/rejoin-go/sessions"
	"github.com/rejoin-tls/rejoin-go/share"
	"github.com/rejoin-tls/rejoin-go/share/sharetest"
)

func options(s *sharetest.Share) sessions.Options {
	return sessions.Options{
		Options: share.Options{Socket: s.Socket, Context: "shop", Report: func(error) {}}, Wait: 10 * time.Second,
	}
}

func open(t testing.TB, o sessions.Options) *sessions.Cache {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	t.Cleanup(stop)
	cache, err := sessions.Open(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	return cache
}

func ready(t testing.TB, o sessions.Options) *sessions.Cache {
	cache := open(t, o)
	<-cache.Ready()
	return cache
}

type site struct {
	authority *testtls.Authority
	cert      tls.Certificate
}

func newSite(t testing.TB) site {
	authority := testtls.NewAuthority(t, "test")
	return site{authority, authority.Issue(t, "a.test", "b.test")}
}

func (s site) config() *tls.Config { return &tls.Config{Certificates: []tls.Certificate{s.cert}} }

// The two ways to attach a server.
var ways = map[string]func(testing.TB, *sessions.Cache, *tls.Config) string{"listener": listen, "attached": attach}

func listen(t testing.TB, cache *sessions.Cache, config *tls.Config) string {
	listener, err := cache.Listener(testtls.Listen(t), config)
	if err != nil {
		t.Fatal(err)
	}
	return testtls.Serve(t, listener)
}

func attach(t testing.TB, cache *sessions.Cache, config *tls.Config) string {
	if err := cache.Attach(config); err != nil {
		t.Fatal(err)
	}
	return testtls.Serve(t, tls.NewListener(testtls.Listen(t), config.Clone()))
}

func expect(t *testing.T, got []bool, wanted ...bool) {
	t.Helper()
	if !slices.Equal(got, wanted) {
		t.Errorf("resumed %v, and not %v", got, wanted)
	}
}

// visits connects to one address after the other. What a server stores goes to the share while it serves; the next visit
// begins when it is there.
func visits(t *testing.T, shared *sharetest.Share, caches []*sessions.Cache, client *tls.Config, addresses ...string) []bool {
	t.Helper()
	var resumed []bool
	for _, address := range addresses {
		resumed = append(resumed, testtls.Visits(t, client, address)...)
		settle(shared, caches...)
	}
	return resumed
}

func settle(shared *sharetest.Share, caches ...*sessions.Cache) {
	for {
		stored := uint64(0)
		for _, cache := range caches {
			stored += cache.Counts().Stored
		}
		if uint64(len(shared.Afters())) >= stored {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

func each(t *testing.T, test func(*testing.T, func(testing.TB, *sessions.Cache, *tls.Config) string, uint16)) {
	for name, way := range ways {
		for number, version := range testtls.Versions {
			t.Run(name+" "+number, func(t *testing.T) {
				t.Parallel()
				test(t, way, version)
			})
		}
	}
}

func TestServersResumeEachOthersSessions(t *testing.T) {
	each(t, func(t *testing.T, way func(testing.TB, *sessions.Cache, *tls.Config) string, version uint16) {
		shared, s := sharetest.New(t), newSite(t)
		one, two := ready(t, options(shared)), ready(t, options(shared))
		a, b := way(t, one, s.config()), way(t, two, s.config())
		client := testtls.Client(s.authority, "a.test", version)
		expect(t, visits(t, shared, []*sessions.Cache{one, two}, client, a, b, b, a), false, true, true, true)
		if stored := shared.Sessions(); stored != 1 {
			t.Errorf("%d sessions are left of one client", stored)
		}
		if counts := two.Counts(); counts != (sessions.Counts{Found: 2, Stored: 2}) {
			t.Errorf("%+v", counts)
		}
	})
}

func TestAClientHasOneHistory(t *testing.T) {
	each(t, func(t *testing.T, way func(testing.TB, *sessions.Cache, *tls.Config) string, version uint16) {
		shared, s := sharetest.New(t), newSite(t)
		cache := ready(t, options(shared))
		address := way(t, cache, s.config())
		client := testtls.Client(s.authority, "a.test", version)
		expect(t, visits(t, shared, []*sessions.Cache{cache}, client, address, address, address), false, true, true)
		afters := shared.Afters()
		if len(afters) != 3 || afters[0] != "" || len(afters[1]) != 32 || len(afters[2]) != 32 || afters[1] == afters[2] {
			t.Errorf("%q", afters)
		}
	})
}

// same is a client that offers the first session that it got, again and again.
type same struct{ session *tls.ClientSessionState }

func (s *same) Get(string) (*tls.ClientSessionState, bool) { return s.session, s.session != nil }
func (s *same) Put(_ string, session *tls.ClientSessionState) {
	if s.session == nil {
		s.session = session
	}
}

func TestASessionIsUsedOnce(t *testing.T) {
	each(t, func(t *testing.T, way func(testing.TB, *sessions.Cache, *tls.Config) string, version uint16) {
		shared, s := sharetest.New(t), newSite(t)
		once := way(t, ready(t, options(shared)), s.config())
		client := testtls.Client(s.authority, "a.test", version)
		client.ClientSessionCache = new(same)
		expect(t, testtls.Visits(t, client, once, once, once), false, true, false)
		keeps := options(shared)
		keeps.KeepTLS12 = true
		kept := way(t, ready(t, keeps), s.config())
		client.ClientSessionCache = new(same)
		expect(t, testtls.Visits(t, client, kept, kept, kept), false, true, version == tls.VersionTLS12)
	})
}

func TestSessionsStayWhereCertificatesAreAskedForAlike(t *testing.T) {
	s := newSite(t)
	other := testtls.NewAuthority(t, "other")
	asks := func(auth tls.ClientAuthType, authority *testtls.Authority, checked bool) func() *tls.Config {
		return func() *tls.Config {
			config := s.config()
			config.ClientAuth, config.ClientCAs = auth, authority.Pool()
			if checked {
				config.VerifyPeerCertificate = func([][]byte, [][]*x509.Certificate) error { return nil }
			}
			return config
		}
	}
	strict := asks(tls.RequireAndVerifyClientCert, s.authority, false)
	checks := asks(tls.RequireAndVerifyClientCert, s.authority, true)
	// GetConfigForClient may ask for more.
	chosen := func() *tls.Config {
		config := s.config()
		config.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) { return strict(), nil }
		return config
	}
	for name, test := range map[string]struct {
		made, resumed func() *tls.Config
		checks        string
		wanted        bool
	}{
		"alike":                {strict, strict, "", true},
		"certificates asked":   {s.config, asks(tls.VerifyClientCertIfGiven, s.authority, false), "", false},
		"other strictness":     {asks(tls.RequireAnyClientCert, s.authority, false), strict, "", false},
		"other authority":      {strict, asks(tls.RequestClientCert, other, false), "", false},
		"checks of its own":    {checks, checks, "", false},
		"checks with one name": {checks, checks, "pins", true},
		"chosen":               {chosen, strict, "", true},
		"chosen more strictly": {s.config, chosen, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			shared := sharetest.New(t)
			o := options(shared)
			o.Checks = test.checks
			one, two := ready(t, o), ready(t, o)
			a, b := listen(t, one, test.made()), listen(t, two, test.resumed())
			client := testtls.Client(s.authority, "a.test", tls.VersionTLS13)
			client.Certificates = []tls.Certificate{s.authority.Issue(t, "client")}
			resumed := testtls.Visits(t, client, a)
			settle(shared, one)
			expect(t, append(resumed, testtls.Visits(t, client, b)...), false, test.wanted)
		})
	}
}

func TestChecksOfOneConfigAreNotThoseOfAnother(t *testing.T) {
	each(t, func(t *testing.T, way func(testing.TB, *sessions.Cache, *tls.Config) string, version uint16) {
		shared, s := sharetest.New(t), newSite(t)
		cache := ready(t, options(shared))
		device := way(t, cache, testtls.Pinned(s.config(), "device"))
		admin := way(t, cache, testtls.Pinned(s.config(), "admin"))
		client := testtls.Client(s.authority, "a.test", version)
		client.Certificates = []tls.Certificate{s.authority.Issue(t, "device")}
		expect(t, visits(t, shared, []*sessions.Cache{cache}, client, device, device), false, true)
		if resumed, err := testtls.Visit(admin, client); err == nil {
			t.Errorf("a device is an admin: resumed %v", resumed)
		}
	})
}

// anyName is a client that offers a session of one name to another.
type anyName struct{ tls.ClientSessionCache }

func (a anyName) Get(string) (*tls.ClientSessionState, bool) { return a.ClientSessionCache.Get("") }
func (a anyName) Put(_ string, session *tls.ClientSessionState) {
	a.ClientSessionCache.Put("", session)
}

func TestAnotherNameIsAnotherServer(t *testing.T) {
	each(t, func(t *testing.T, way func(testing.TB, *sessions.Cache, *tls.Config) string, version uint16) {
		shared, s := sharetest.New(t), newSite(t)
		address := way(t, ready(t, options(shared)), s.config())
		client := testtls.Client(s.authority, "a.test", version)
		client.ClientSessionCache = anyName{client.ClientSessionCache}
		expect(t, testtls.Visits(t, client, address, address), false, true)
		client = client.Clone()
		client.ServerName = "b.test"
		expect(t, testtls.Visits(t, client, address), false)
	})
}

func TestAServerGoesOnWithoutAShare(t *testing.T) {
	each(t, func(t *testing.T, way func(testing.TB, *sessions.Cache, *tls.Config) string, version uint16) {
		shared, s := sharetest.New(t), newSite(t)
		shared.Stop()
		cache := open(t, options(shared))
		address := way(t, cache, s.config())
		client := testtls.Client(s.authority, "a.test", version)
		// By tickets of its own.
		expect(t, testtls.Visits(t, client, address, address), false, true)
		shared.Start()
		<-cache.Ready()
		expect(t, testtls.Visits(t, client, address, address), true, true)
		if counts := cache.Counts(); counts.Tickets != 2 || counts.Found != 1 {
			t.Errorf("%+v", counts)
		}
		strict := options(shared)
		strict.Socket += ".nowhere"
		strict.NoTickets = true
		address = way(t, open(t, strict), s.config())
		client = testtls.Client(s.authority, "a.test", version)
		expect(t, testtls.Visits(t, client, address, address), false, false)
	})
}

func TestChosenConfigsGoOnWithoutAShare(t *testing.T) {
	for number, version := range testtls.Versions {
		t.Run(number, func(t *testing.T) {
			shared, s := sharetest.New(t), newSite(t)
			shared.Stop()
			choosing := func(chosen func() *tls.Config) *tls.Config {
				config := s.config()
				config.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) { return chosen(), nil }
				return config
			}
			client := testtls.Client(s.authority, "a.test", version)
			address := listen(t, open(t, options(shared)), choosing(s.config))
			expect(t, testtls.Visits(t, client, address, address, address), false, true, true)

			// Keys of their own are those of a server without Rejoin.
			keyed := func() *tls.Config {
				config := s.config()
				config.SetSessionTicketKeys([][32]byte{{1}})
				return config
			}
			client = testtls.Client(s.authority, "a.test", version)
			address = listen(t, open(t, options(shared)), choosing(keyed))
			plain := testtls.Serve(t, tls.NewListener(testtls.Listen(t), keyed()))
			expect(t, testtls.Visits(t, client, address, plain, address), false, true, true)

			// A ticket stays where certificates are asked for as when it was made.
			asks := false
			client = testtls.Client(s.authority, "a.test", version)
			client.Certificates = []tls.Certificate{s.authority.Issue(t, "client")}
			client.ClientSessionCache = new(same)
			address = listen(t, open(t, options(shared)), choosing(func() *tls.Config {
				config := s.config()
				if asks {
					config.ClientAuth, config.ClientCAs = tls.RequireAndVerifyClientCert, s.authority.Pool()
				} else {
					config.ClientAuth = tls.RequireAnyClientCert
				}
				return config
			}))
			resumed := testtls.Visits(t, client, address, address)
			asks = true
			expect(t, append(resumed, testtls.Visits(t, client, address)...), false, true, false)
		})
	}
}

func TestAFrozenShareHoldsNobodyUp(t *testing.T) {
	shared, s := sharetest.New(t), newSite(t)
	o := options(shared)
	o.Wait = 0
	cache := ready(t, o)
	address := listen(t, cache, s.config())
	client := testtls.Client(s.authority, "a.test", tls.VersionTLS13)
	testtls.Visits(t, client, address)
	thaw := shared.Freeze()
	// The first waits, the second does not ask, and gets a ticket that the third brings.
	expect(t, testtls.Visits(t, client, address, address, address), false, true, true)
	if counts := cache.Counts(); counts.Tickets != 3 {
		t.Errorf("%+v", counts)
	}
	thaw()
}

func TestADamagedSessionFailsNoConnection(t *testing.T) {
	each(t, func(t *testing.T, way func(testing.TB, *sessions.Cache, *tls.Config) string, version uint16) {
		shared, s := sharetest.New(t), newSite(t)
		cache := ready(t, options(shared))
		address := way(t, cache, s.config())
		client := testtls.Client(s.authority, "a.test", version)
		testtls.Visits(t, client, address)
		settle(shared, cache)
		shared.Damage()
		expect(t, testtls.Visits(t, client, address, address), false, true)
	})
}

func TestHTTPServers(t *testing.T) {
	shared, s := sharetest.New(t), newSite(t)
	cache := ready(t, options(shared))
	hello := http.HandlerFunc(func(answer http.ResponseWriter, _ *http.Request) { answer.Write([]byte("hello")) })
	inner := testtls.Listen(t)
	config := s.config()
	config.NextProtos = []string{"h2", "http/1.1"}
	listener, err := cache.Listener(inner, config)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: sessions.NextConnect(hello), ConnContext: sessions.ConnContext}
	go server.Serve(listener)
	t.Cleanup(func() { server.Close() })
	attached := &http.Server{Handler: hello, TLSConfig: s.config()}
	if err := cache.Attach(attached.TLSConfig); err != nil {
		t.Fatal(err)
	}
	second := testtls.Listen(t)
	go attached.ServeTLS(second, "", "")
	t.Cleanup(func() { attached.Close() })
	client := testtls.Client(s.authority, "a.test", tls.VersionTLS13)
	for i, address := range []string{inner.Addr().String(), second.Addr().String(), inner.Addr().String()} {
		transport := &http.Transport{TLSClientConfig: client, DisableKeepAlives: true, ForceAttemptHTTP2: true}
		request, _ := http.NewRequest("GET", "https://"+address, nil)
		request.Header.Set("Next-Connect", "60")
		answer, err := (&http.Client{Transport: transport}).Do(request)
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		if answer.TLS.DidResume != (i > 0) || answer.Proto != "HTTP/2.0" {
			t.Errorf("%d: %v %s", i, answer.TLS.DidResume, answer.Proto)
		}
	}
	// Hints are sent and not waited for: a lookup comes after them.
	testtls.Visit(inner.Addr().String(), client)
	if hints := shared.Hints(); !slices.Equal(hints, []float64{60, 60}) {
		t.Errorf("%v", hints)
	}
}

// onlyConn hides all but a net.Conn.
type onlyConn struct{ net.Conn }

type hiding struct{ net.Listener }

func (h hiding) Accept() (net.Conn, error) {
	conn, err := h.Listener.Accept()
	return onlyConn{conn}, err
}

func TestTheConnectionBelowIsWithinReach(t *testing.T) {
	cache := open(t, options(sharetest.New(t)))
	below := func(inner net.Listener) net.Conn {
		listener, err := cache.Listener(inner, new(tls.Config))
		if err != nil {
			t.Fatal(err)
		}
		defer listener.Close()
		client, err := net.Dial("tcp", inner.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		conn, err := listener.Accept()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		return conn.(*tls.Conn).NetConn()
	}
	conn := below(testtls.Listen(t))
	wrapped, ok := conn.(interface{ NetConn() net.Conn })
	if !ok {
		t.Fatalf("%T does not say what it wraps", conn)
	}
	if _, ok := wrapped.NetConn().(*net.TCPConn); !ok {
		t.Errorf("%T", wrapped.NetConn())
	}
	// As gRPC does, for options of the socket.
	socket, ok := conn.(syscall.Conn)
	if !ok {
		t.Fatalf("%T is no syscall.Conn", conn)
	}
	if _, err := socket.SyscallConn(); err != nil {
		t.Error(err)
	}
	if _, err := below(hiding{testtls.Listen(t)}).(syscall.Conn).SyscallConn(); !errors.Is(err, errors.ErrUnsupported) {
		t.Error(err)
	}
}

func TestOneThingIsAttached(t *testing.T) {
	cache, config := open(t, options(sharetest.New(t))), new(tls.Config)
	if err := cache.Attach(config); err != nil {
		t.Fatal(err)
	}
	if err := cache.Attach(config); err != sessions.ErrAttached {
		t.Error(err)
	}
	if _, err := cache.Listener(nil, config); err != sessions.ErrAttached {
		t.Error(err)
	}
	if err := cache.Attach(config.Clone()); err != sessions.ErrAttached {
		t.Error(err)
	}
	// What docs/go.md says to do instead.
	before := new(tls.Config)
	for _, each := range []*tls.Config{before.Clone(), before} {
		if err := cache.Attach(each); err != nil {
			t.Error(err)
		}
	}
	if _, err := sessions.Open(context.Background(), sessions.Options{}); err == nil {
		t.Error("no context, and no error")
	}
}
