package ticketkeys_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"slices"
	"testing"

	"github.com/rejoin-tls/rejoin-go/internal/testtls"
	"github.com/rejoin-tls/rejoin-go/share"
	"github.com/rejoin-tls/rejoin-go/share/sharetest"
	"github.com/rejoin-tls/rejoin-go/ticketkeys"
)

func key(number byte) []byte { return bytes.Repeat([]byte{number}, 32) }

func options(s *sharetest.Share) ticketkeys.Options {
	return ticketkeys.Options{Options: share.Options{Socket: s.Socket, Context: "shop", Report: func(error) {}}}
}

func follow(t *testing.T, o ticketkeys.Options, configs ...*tls.Config) *ticketkeys.Ring {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	t.Cleanup(stop)
	ring, err := ticketkeys.Follow(ctx, o, configs...)
	if err != nil {
		t.Fatal(err)
	}
	return ring
}

// turned waits for another list.
func turned(ring *ticketkeys.Ring, act func()) {
	_, changed := ring.Keys()
	act()
	<-changed
}

type site struct {
	authority *testtls.Authority
	cert      tls.Certificate
}

func newSite(t *testing.T) site {
	authority := testtls.NewAuthority(t, "test")
	return site{authority, authority.Issue(t, "a.test", "b.test")}
}

func (s site) config() *tls.Config { return &tls.Config{Certificates: []tls.Certificate{s.cert}} }

func serve(t *testing.T, config *tls.Config) string {
	return testtls.Serve(t, tls.NewListener(testtls.Listen(t), config))
}

func expect(t *testing.T, got []bool, wanted ...bool) {
	t.Helper()
	if !slices.Equal(got, wanted) {
		t.Errorf("resumed %v, and not %v", got, wanted)
	}
}

func TestServersOpenEachOthersTicketsThroughRotations(t *testing.T) {
	for name, version := range testtls.Versions {
		t.Run(name, func(t *testing.T) {
			shared, s := sharetest.New(t), newSite(t)
			shared.Ring(key(1))
			one, two := s.config(), s.config()
			first, second := follow(t, options(shared), one), follow(t, options(shared), two)
			<-first.Ready()
			<-second.Ready()
			a, b := serve(t, one), serve(t, two)
			client := testtls.Client(s.authority, "a.test", version)
			expect(t, testtls.Visits(t, client, a, b, a), false, true, true)
			rotate := func(keys ...[]byte) {
				_, changed := second.Keys()
				turned(first, func() { shared.Ring(keys...) })
				<-changed
			}
			rotate(key(2), key(1))
			expect(t, testtls.Visits(t, client, b, a), true, true)
			// That ticket is of the second key.
			rotate(key(2))
			expect(t, testtls.Visits(t, client, b), true)
			rotate(key(3))
			expect(t, testtls.Visits(t, client, a, b), false, true)
		})
	}
}

func TestAServerGoesOnWithoutAShare(t *testing.T) {
	shared, s := sharetest.New(t), newSite(t)
	shared.Stop()
	one, two := s.config(), s.config()
	ring := follow(t, options(shared), one)
	other := follow(t, options(shared), two)
	a, b := serve(t, one), serve(t, two)
	client := testtls.Client(s.authority, "a.test", tls.VersionTLS13)
	// Its own tickets, as without the package.
	expect(t, testtls.Visits(t, client, a, a), false, true)
	if keys, _ := ring.Keys(); keys != nil {
		t.Error("keys from nowhere")
	}
	shared.Ring(key(1))
	shared.Start()
	<-ring.Ready()
	<-other.Ready()
	// The ticket from before still opens, at the server that made it.
	expect(t, testtls.Visits(t, client, a, b), true, true)
	shared.Stop()
	expect(t, testtls.Visits(t, client, a, b), true, true)
	turned(ring, func() {
		shared.Ring(key(2), key(1))
		shared.Start()
	})
	expect(t, testtls.Visits(t, client, a, b), true, true)
}

func TestConfigsOfClientsGoOnWithoutAShare(t *testing.T) {
	for name, version := range testtls.Versions {
		t.Run(name, func(t *testing.T) {
			shared, s := sharetest.New(t), newSite(t)
			shared.Stop()
			base := s.config()
			ring := follow(t, options(shared), base)
			choosing := func(chosen func() *tls.Config) *tls.Config {
				config := base.Clone()
				config.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
					config := chosen()
					return config, ring.Attach(config)
				}
				return config
			}
			client := testtls.Client(s.authority, "a.test", version)
			address := serve(t, choosing(s.config))
			expect(t, testtls.Visits(t, client, address, address), false, true)

			// Keys of their own are those of a server without Rejoin.
			keyed := func() *tls.Config {
				config := s.config()
				config.SetSessionTicketKeys([][32]byte{{1}})
				return config
			}
			other := testtls.Client(s.authority, "a.test", version)
			expect(t, testtls.Visits(t, other, serve(t, choosing(keyed)), serve(t, keyed())), false, true)

			// A ticket stays with the checks of its config.
			devices, admins := testtls.Pinned(s.config(), "device"), testtls.Pinned(s.config(), "admin")
			for _, config := range []*tls.Config{devices, admins} {
				if err := ring.Attach(config); err != nil {
					t.Fatal(err)
				}
			}
			device := testtls.Client(s.authority, "a.test", version)
			device.Certificates = []tls.Certificate{s.authority.Issue(t, "device")}
			expect(t, testtls.Visits(t, device, serve(t, devices.Clone()), serve(t, devices.Clone())), false, true)
			if resumed, err := testtls.Visit(serve(t, admins.Clone()), device); err == nil {
				t.Errorf("a device is an admin: resumed %v", resumed)
			}

			// What was made before the first list still opens.
			turned(ring, func() {
				shared.Ring(key(1))
				shared.Start()
			})
			expect(t, testtls.Visits(t, client, address, address), true, true)
		})
	}
}

func TestClonesFollow(t *testing.T) {
	shared, s := sharetest.New(t), newSite(t)
	one, two := s.config(), s.config()
	ring := follow(t, options(shared), one, two)
	server := &http.Server{TLSConfig: one}
	listener := testtls.Listen(t)
	go server.ServeTLS(listener, "", "")
	t.Cleanup(func() { server.Close() })
	// It has cloned its config when it answers.
	client := testtls.Client(s.authority, "a.test", tls.VersionTLS13)
	get := func() *http.Response {
		transport := &http.Transport{TLSClientConfig: client, DisableKeepAlives: true, ForceAttemptHTTP2: true}
		answer, err := (&http.Client{Transport: transport}).Get("https://" + listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		return answer
	}
	if answer := get(); answer.TLS.DidResume || answer.Proto != "HTTP/2.0" {
		t.Errorf("%v %s", answer.TLS.DidResume, answer.Proto)
	}
	turned(ring, func() { shared.Ring(key(1)) })
	if !get().TLS.DidResume {
		t.Error("the server's own ticket did not open")
	}
	expect(t, testtls.Visits(t, client, serve(t, two.Clone())), true)
}

func TestTicketsStayWhereCertificatesAreAskedForAlike(t *testing.T) {
	shared, s := sharetest.New(t), newSite(t)
	shared.Ring(key(1))
	other := testtls.NewAuthority(t, "other")
	check := func([][]byte, [][]*x509.Certificate) error { return nil }
	asks := func(auth tls.ClientAuthType, authority *testtls.Authority) func() *tls.Config {
		return func() *tls.Config {
			config := s.config()
			config.ClientAuth, config.ClientCAs = auth, authority.Pool()
			return config
		}
	}
	checks := func() *tls.Config {
		config := asks(tls.RequireAndVerifyClientCert, s.authority)()
		config.VerifyPeerCertificate = check
		return config
	}
	strict := asks(tls.RequireAndVerifyClientCert, s.authority)
	for name, test := range map[string]struct {
		made, opened func() *tls.Config
		checks       string
		resumed      bool
	}{
		"alike":                {strict, strict, "", true},
		"certificates asked":   {s.config, asks(tls.VerifyClientCertIfGiven, s.authority), "", false},
		"other strictness":     {asks(tls.RequireAnyClientCert, s.authority), strict, "", false},
		"other authority":      {strict, asks(tls.RequestClientCert, other), "", false},
		"checks of its own":    {checks, checks, "", false},
		"checks with one name": {checks, checks, "pins", true},
	} {
		t.Run(name, func(t *testing.T) {
			one, two := test.made(), test.opened()
			o := options(shared)
			o.Checks = test.checks
			<-follow(t, o, one).Ready()
			<-follow(t, o, two).Ready()
			client := testtls.Client(s.authority, "a.test", tls.VersionTLS13)
			client.Certificates = []tls.Certificate{s.authority.Issue(t, "client")}
			expect(t, testtls.Visits(t, client, serve(t, one), serve(t, two)), false, test.resumed)
		})
	}
	t.Run("another name", func(t *testing.T) {
		one := strict()
		<-follow(t, options(shared), one).Ready()
		address := serve(t, one)
		client := testtls.Client(s.authority, "a.test", tls.VersionTLS13)
		client.Certificates = []tls.Certificate{s.authority.Issue(t, "client")}
		sessions := client.ClientSessionCache
		client.ClientSessionCache = anyName{sessions}
		expect(t, testtls.Visits(t, client, address, address), false, true)
		client = client.Clone()
		client.ServerName = "b.test"
		expect(t, testtls.Visits(t, client, address), false)
	})
}

func TestChecksOfOneConfigAreNotThoseOfAnother(t *testing.T) {
	for name, version := range testtls.Versions {
		t.Run(name, func(t *testing.T) {
			shared, s := sharetest.New(t), newSite(t)
			shared.Ring(key(1))
			devices, admins := testtls.Pinned(s.config(), "device"), testtls.Pinned(s.config(), "admin")
			<-follow(t, options(shared), devices, admins).Ready()
			device, admin := serve(t, devices.Clone()), serve(t, admins)
			client := testtls.Client(s.authority, "a.test", version)
			client.Certificates = []tls.Certificate{s.authority.Issue(t, "device")}
			// A clone's checks are those of its original.
			expect(t, testtls.Visits(t, client, device, serve(t, devices)), false, true)
			if resumed, err := testtls.Visit(admin, client); err == nil {
				t.Errorf("a device is an admin: resumed %v", resumed)
			}
		})
	}
}

// anyName is a client that offers a session of one name to another.
type anyName struct{ tls.ClientSessionCache }

func (a anyName) Get(string) (*tls.ClientSessionState, bool) { return a.ClientSessionCache.Get("") }
func (a anyName) Put(_ string, session *tls.ClientSessionState) {
	a.ClientSessionCache.Put("", session)
}

func TestOneThingIsAttached(t *testing.T) {
	shared, config := sharetest.New(t), new(tls.Config)
	ring := follow(t, options(shared), config)
	if err := ring.Attach(config); err != ticketkeys.ErrAttached {
		t.Error(err)
	}
	if _, err := ticketkeys.Follow(context.Background(), ticketkeys.Options{}); err == nil {
		t.Error("no context, and no error")
	}
}
