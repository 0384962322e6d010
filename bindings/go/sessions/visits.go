package sessions

import (
	"sync"
	"unsafe"

	"github.com/rejoin-tls/rejoin-go/share"
)

const visitsAtMost = 1024

// visits remembers what connections found, from UnwrapSession to WrapSession. A connection is known by where its
// server name is in memory: crypto/tls reads the name once for each, and passes the same string to both. A name that
// is remembered here stays in memory, so no other gets its place. If crypto/tls should copy the string one day, nothing
// is found here, and clients have no history.
type visits struct {
	lock  sync.Mutex
	found map[*byte]*share.Found
	// names are those in found, and others that have left it, in the order in which they came.
	names []*byte
	next  int
}

func (v *visits) begin(name string, found *share.Found) {
	if name == "" || found == nil {
		return
	}
	v.lock.Lock()
	defer v.lock.Unlock()
	if v.found == nil {
		v.found, v.names = make(map[*byte]*share.Found), make([]*byte, visitsAtMost)
	}
	delete(v.found, v.names[v.next])
	v.names[v.next] = unsafe.StringData(name)
	v.next = (v.next + 1) % visitsAtMost
	v.found[unsafe.StringData(name)] = found
}

func (v *visits) end(name string) *share.Found {
	if name == "" {
		return nil
	}
	v.lock.Lock()
	defer v.lock.Unlock()
	found := v.found[unsafe.StringData(name)]
	delete(v.found, unsafe.StringData(name))
	return found
}
