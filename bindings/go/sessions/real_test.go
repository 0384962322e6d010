package sessions_test

import (
	"context"
	"crypto/tls"
	"testing"
	"time"

	"github.com/rejoin-tls/rejoin-go/internal/testtls"
	"github.com/rejoin-tls/rejoin-go/sessions"
	"github.com/rejoin-tls/rejoin-go/share"
	"github.com/rejoin-tls/rejoin-go/share/sharetest"
)

func realOptions(real *sharetest.Real) sessions.Options {
	return sessions.Options{Options: share.Options{Socket: real.Socket, Context: "shop"}, Wait: 10 * time.Second}
}

func TestTheRealShare(t *testing.T) {
	real, s := sharetest.NewReal(t), newSite(t)
	one, two := ready(t, realOptions(real)), ready(t, realOptions(real))
	for number, version := range testtls.Versions {
		a, b := listen(t, one, s.config()), attach(t, two, s.config())
		client := testtls.Client(s.authority, "a.test", version)
		for i := range 101 {
			address := []string{a, b}[i%2]
			if resumed := testtls.Visits(t, client, address)[0]; resumed != (i > 0) {
				t.Errorf("TLS %s, visit %d: resumed %v", number, i, resumed)
			}
			one.Flush()
			two.Flush()
		}
	}
}

// BenchmarkResumption is one connection that is resumed, client and server in one process, over the loopback.
func BenchmarkResumption(b *testing.B) {
	real, s := sharetest.NewReal(b), newSite(b)
	cache := ready(b, realOptions(real))
	plain := func(b testing.TB, _ *sessions.Cache, config *tls.Config) string {
		return testtls.Serve(b, tls.NewListener(testtls.Listen(b), config))
	}
	// As `chosen`: what a config for each connection costs.
	clones := func(b testing.TB, _ *sessions.Cache, config *tls.Config) string {
		config.SetSessionTicketKeys([][32]byte{{1}})
		base := config.Clone()
		config.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) { return base.Clone(), nil }
		return plain(b, nil, config)
	}
	full := func(b testing.TB, _ *sessions.Cache, config *tls.Config) string {
		config.SessionTicketsDisabled = true
		return plain(b, nil, config)
	}
	for _, version := range []string{"1.2", "1.3"} {
		for _, way := range []struct {
			name  string
			serve func(testing.TB, *sessions.Cache, *tls.Config) string
		}{{"full", full}, {"tickets", plain}, {"tickets,clones", clones}, {"attached", attach}, {"listener", listen}} {
			b.Run(version+"/"+way.name, func(b *testing.B) {
				address := way.serve(b, cache, s.config())
				client := testtls.Client(s.authority, "a.test", testtls.Versions[version])
				testtls.Visit(address, client)
				resumed := 0
				b.ReportAllocs()
				b.ResetTimer()
				for range b.N {
					did, err := testtls.Visit(address, client)
					if err != nil {
						b.Fatal(err)
					}
					if did {
						resumed++
					}
				}
				b.ReportMetric(100*float64(resumed)/float64(b.N), "resumed-%")
			})
		}
	}
}

// BenchmarkLookup is the share's answer alone.
func BenchmarkLookup(b *testing.B) {
	real := sharetest.NewReal(b)
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	opened, err := share.OpenSessions(ctx, realOptions(real).Options)
	if err != nil {
		b.Fatal(err)
	}
	<-opened.Ready()
	for range b.N {
		opened.Take([]byte("nobody's"), share.Wait)
	}
}
