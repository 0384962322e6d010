// Package caddy gives Caddy the ticket keys of `rejoin share`: the module tls.stek.rejoin. Caddys of one context open
// each other's tickets, also after a restart, and those of Go servers with the package ticketkeys.
package caddy

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddytls"

	"github.com/rejoin-tls/rejoin-go/share"
	"github.com/rejoin-tls/rejoin-go/ticketkeys"
)

const (
	name = "rejoin"
	// The context unless the configuration names one.
	defaultContext = "caddy"
	// Caddy starts with keys of its own if the share has not answered by then.
	patience = 2 * time.Second
	// Tickets under keys of its own open for so long after the share's keys came.
	ownOpen = 24 * time.Hour
)

func init() {
	caddy.RegisterModule(new(Keys))
}

// Keys follows the ring of a share. Until the share answers, Caddy makes keys of its own, and rotates them as it does
// without this module. If the share goes away, the last keys stay.
type Keys struct {
	// Socket is the share's: by default /run/rejoin/share.sock.
	Socket string `json:"socket,omitempty"`
	// Context is shared by servers that open each other's tickets: by default "caddy".
	Context string `json:"context,omitempty"`
	// User may run the share, beside Caddy's own user and root.
	User string `json:"user,omitempty"`

	log      *slog.Logger
	ring     *ticketkeys.Ring
	reports  *reports
	settings *caddytls.SessionTicketService
	own      [][32]byte
	ownSince time.Time
	changed  <-chan struct{}
}

// CaddyModule is for Caddy.
func (*Keys) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "tls.stek.rejoin", New: func() caddy.Module { return new(Keys) }}
}

// Provision is for Caddy.
func (k *Keys) Provision(ctx caddy.Context) error {
	k.log = ctx.Slogger()
	if k.Context == "" {
		k.Context = defaultContext
	}
	return k.options(nil).Check()
}

func (k *Keys) options(report func(error)) share.Options {
	return share.Options{Socket: k.Socket, Context: k.Context, User: k.User, Report: report}
}

// rings has one for each share and context, so that keys outlast a change of the configuration.
var rings = caddy.NewUsagePool()

type followed struct {
	*ticketkeys.Ring
	reports *reports
	stop    context.CancelFunc
}

// Destruct is for Caddy's pool.
func (f followed) Destruct() error {
	f.stop()
	return nil
}

func (k *Keys) key() string { return fmt.Sprintf("%q %q %q", k.Socket, k.Context, k.User) }

// reports go to the log of the newest configuration that has the ring.
type reports struct {
	lock sync.Mutex
	logs []*slog.Logger
	told bool
	last error
}

func (r *reports) report(err error) {
	r.lock.Lock()
	defer r.lock.Unlock()
	r.told, r.last = true, err
	r.tell()
}

// join has the reports go to this log until it leaves, and begins with the present state.
func (r *reports) join(log *slog.Logger) {
	r.lock.Lock()
	defer r.lock.Unlock()
	r.logs = append(r.logs, log)
	r.tell()
}

func (r *reports) leave(log *slog.Logger) {
	r.lock.Lock()
	defer r.lock.Unlock()
	r.logs = slices.DeleteFunc(r.logs, func(one *slog.Logger) bool { return one == log })
}

// tell is called with the lock.
func (r *reports) tell() {
	if !r.told || len(r.logs) == 0 {
		return
	}
	log := r.logs[len(r.logs)-1]
	if r.last != nil {
		log.Warn("rejoin: " + r.last.Error())
		return
	}
	log.Info("rejoin: the share gives ticket keys")
}

// Initialize is for Caddy. It returns the ring's keys, or Caddy's own if there are none yet.
func (k *Keys) Initialize(settings *caddytls.SessionTicketService) ([][32]byte, error) {
	k.settings = settings
	found, _, err := rings.LoadOrNew(k.key(), func() (caddy.Destructor, error) {
		ctx, stop := context.WithCancel(context.Background())
		reports := new(reports)
		ring, err := ticketkeys.Follow(ctx, ticketkeys.Options{Options: k.options(reports.report)})
		return followed{ring, reports, stop}, err
	})
	if err != nil {
		return nil, err
	}
	k.ring, k.reports = found.(followed).Ring, found.(followed).reports
	k.reports.join(k.log)
	select {
	case <-k.ring.Ready():
	case <-time.After(patience):
	}
	return k.now(false)
}

// now returns the keys that are in use from now on. Caddy's own are used where there are no others.
func (k *Keys) now(rotate bool) ([][32]byte, error) {
	var keys [][32]byte
	keys, k.changed = k.ring.Keys()
	if keys != nil {
		if time.Since(k.ownSince) < ownOpen {
			keys = append(keys, k.own...)
		}
		return keys, nil
	}
	if rotate || k.own == nil {
		rotated, err := k.settings.RotateSTEKs(k.own)
		if err != nil {
			return nil, err
		}
		k.own = rotated
	}
	k.ownSince = time.Now()
	return append([][32]byte(nil), k.own...), nil
}

// Next is for Caddy. It sends lists of keys until Caddy is done with them.
func (k *Keys) Next(done <-chan struct{}) <-chan [][32]byte {
	lists := make(chan [][32]byte)
	go k.send(lists, done)
	return lists
}

func (k *Keys) send(lists chan<- [][32]byte, done <-chan struct{}) {
	defer rings.Delete(k.key())
	defer k.reports.leave(k.log)
	turn := time.NewTicker(time.Duration(k.settings.RotationInterval))
	defer turn.Stop()
	for {
		rotate := false
		select {
		case <-done:
			return
		case <-k.changed:
		case <-turn.C:
			rotate = true
		}
		keys, err := k.now(rotate)
		if err != nil {
			k.log.Error("rejoin: no new key of its own: " + err.Error())
			continue
		}
		select {
		case <-done:
			return
		case lists <- keys:
		}
	}
}

var (
	_ caddytls.STEKProvider = (*Keys)(nil)
	_ caddy.Provisioner     = (*Keys)(nil)
)
