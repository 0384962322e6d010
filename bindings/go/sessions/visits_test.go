package sessions

import (
	"crypto/tls"
	"testing"
	"time"

	"github.com/rejoin-tls/rejoin-go/internal/policy"
	"github.com/rejoin-tls/rejoin-go/share"
)

func name() string { return string([]byte("a.test")) }

func TestVisitsAreBounded(t *testing.T) {
	var v visits
	kept := make([]string, 2*visitsAtMost)
	for i := range kept {
		kept[i] = name()
		v.begin(kept[i], &share.Found{})
	}
	if len(v.found) != visitsAtMost {
		t.Errorf("%d are remembered", len(v.found))
	}
	last := kept[len(kept)-1]
	if v.end(kept[0]) != nil || v.end(name()) != nil || v.end(last) == nil || v.end(last) != nil {
		t.Error("another visit was found, or the own one was not")
	}
}

// BenchmarkLink is what it takes to know at WrapSession what UnwrapSession found: by the name's place in memory, or by
// a config for each connection.
func BenchmarkLink(b *testing.B) {
	b.Run("name", func(b *testing.B) {
		var v visits
		found := new(share.Found)
		for range b.N {
			name := name()
			v.begin(name, found)
			v.end(name)
		}
	})
	b.Run("config", func(b *testing.B) {
		model := new(tls.Config)
		model.SetSessionTicketKeys([][32]byte{{1}})
		for range b.N {
			own := model.Clone()
			(&visit{cache: new(Cache)}).attach(own, configTickets{model}, policy.Policy{})
		}
	})
}

func TestNextConnectIsRead(t *testing.T) {
	for said, wanted := range map[string]time.Duration{
		"60": time.Minute, "0.25": 250 * time.Millisecond, "604800": 7 * 24 * time.Hour,
		"": 0, "0": 0, "-1": 0, "NaN": 0, "Inf": 0, "604801": 0, "60s": 0, "1e300": 0,
	} {
		if got, ok := announced(said); got != wanted || ok != (wanted > 0) {
			t.Errorf("%q: %v %v", said, got, ok)
		}
	}
}
