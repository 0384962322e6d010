package share

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"time"

	"github.com/rejoin-tls/rejoin-go/internal/wire"
)

// Form is how ticket keys are cut.
type Form string

// The forms, with their lengths in bytes.
const (
	// Raw32 is for crypto/tls and Caddy.
	Raw32 Form = "raw32"
	// Raw48 is a name, an HMAC key and an AES-128 key, 16 bytes each.
	Raw48 Form = "raw48"
	// Raw80 is a name (16), an HMAC key (32) and an AES-256 key (32).
	Raw80 Form = "raw80"
)

func (f Form) bytes() int {
	return map[Form]int{Raw32: 32, Raw48: 48, Raw80: 80}[f]
}

// State is what a key is for.
type State string

// The states. The first key of a list encrypts; all others only decrypt.
const (
	Encrypting State = "encrypting"
	Upcoming   State = "upcoming"
	Opening    State = "opening"
)

// Key is a ticket key.
type Key struct {
	Secret []byte
	State  State
}

// String leaves the secret out.
func (k Key) String() string { return fmt.Sprintf("a ticket key (%s)", k.State) }

// GoString leaves the secret out.
func (k Key) GoString() string { return k.String() }

// KeyList is the ring as the share sees it now: 1 to 16 keys, the one that encrypts first.
type KeyList struct {
	Keys []Key
	// TicketLifetime is the longest that a server may give a ticket: a second to seven days.
	TicketLifetime time.Duration
	// ChangesIn is the time to the next planned change, and zero if none is planned.
	ChangesIn time.Duration
}

const (
	keysAtMost     = 16
	lifetimeAtMost = 604_800
)

// FollowKeys gives take each list of keys as it comes, until the context ends. If the share goes away it connects
// again, after a second at first and a minute at last; the last list stays good meanwhile. It fails at once if the
// options are wrong, and otherwise returns nil when the context ends.
func FollowKeys(ctx context.Context, options Options, form Form, take func(KeyList)) error {
	if form.bytes() == 0 {
		return fmt.Errorf("there is no form %q: use Raw32, Raw48 or Raw80", form)
	}
	p, err := options.place()
	if err != nil {
		return err
	}
	p.keepOn(ctx, func(_ context.Context, conn *net.UnixConn) error {
		return p.lists(conn, form, take)
	})
	return nil
}

type keysWanted struct {
	Rejoin int `json:"rejoin"`
	Keys   struct {
		Context string `json:"context"`
		Form    Form   `json:"form"`
	} `json:"keys"`
}

func (p *place) lists(conn net.Conn, form Form, take func(KeyList)) error {
	wanted := keysWanted{Rejoin: wire.Version}
	wanted.Keys.Context, wanted.Keys.Form = p.Context, form
	if err := begin(conn, wanted); err != nil {
		return err
	}
	// The first list comes when there is a ring, and others when there is something new.
	if err := conn.SetDeadline(time.Time{}); err != nil {
		return err
	}
	from := bufio.NewReader(conn)
	for {
		list, err := readList(from, form)
		if err != nil {
			return err
		}
		p.tell(nil)
		take(list)
	}
}

type keysAnswer struct {
	opening
	Keys []struct {
		Key   []byte `json:"key"`
		State State  `json:"state"`
	} `json:"keys"`
	Lifetime  int64   `json:"ticket_lifetime_s"`
	ChangesIn float64 `json:"changes_in_s"`
}

func readList(from *bufio.Reader, form Form) (KeyList, error) {
	var said keysAnswer
	if err := wire.Read(from, &said, answerBytes); err != nil {
		return KeyList{}, err
	}
	if err := said.check(); err != nil {
		return KeyList{}, err
	}
	if len(said.Keys) == 0 || len(said.Keys) > keysAtMost {
		return KeyList{}, fmt.Errorf("%w: %d keys", errAnswer, len(said.Keys))
	}
	if said.Keys[0].State != Encrypting {
		return KeyList{}, fmt.Errorf("%w: its first key does not encrypt", errAnswer)
	}
	if said.Lifetime < 1 || said.Lifetime > lifetimeAtMost {
		return KeyList{}, fmt.Errorf("%w: tickets for %d seconds", errAnswer, said.Lifetime)
	}
	list := KeyList{TicketLifetime: time.Duration(said.Lifetime) * time.Second, ChangesIn: seconds(said.ChangesIn)}
	for _, key := range said.Keys {
		if len(key.Key) != form.bytes() {
			return KeyList{}, fmt.Errorf("%w: a key of %d bytes", errAnswer, len(key.Key))
		}
		list.Keys = append(list.Keys, Key{Secret: key.Key, State: key.State})
	}
	return list, nil
}

func seconds(said float64) time.Duration {
	return time.Duration(max(0, min(said, lifetimeAtMost)) * float64(time.Second))
}
