// Package policy says under which conditions a session was made, so that it is resumed under the same alone.
package policy

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"encoding/binary"
	"slices"
	"strings"
)

// Size is that of a policy and of a mark, in bytes.
const Size = sha256.Size

// Policy is what a server asks of its clients' certificates.
type Policy struct {
	// Asks is false if it asks for none.
	Asks bool
	hash [Size]byte
}

// Own tells one attached config, its clones with it, from all others. Sessions of configs whose checks nobody can see stay
// with it.
type Own [16]byte

// NewOwn returns a fresh one.
func NewOwn() (own Own) {
	// It does not fail; if it did, crypto/tls would not work either.
	_, _ = rand.Read(own[:])
	return own
}

// Of reads a config. crypto/tls does not call VerifyPeerCertificate when a session is resumed, and no other process
// can know what it checks. So a config with it shares with none, unless the operator gives such checks a name: then
// with those of the same name.
func Of(config *tls.Config, checks string, own Own) Policy {
	asked := sha256.New()
	part := func(said []byte) {
		asked.Write(binary.BigEndian.AppendUint32(nil, uint32(len(said))))
		asked.Write(said)
	}
	part([]byte("rejoin-go policy 1"))
	part([]byte{byte(config.ClientAuth)})
	if config.ClientAuth != tls.NoClientCert {
		for _, subject := range subjects(config) {
			part(subject)
		}
		part([]byte(checks))
		if config.VerifyPeerCertificate != nil && checks == "" {
			part(own[:])
		}
	}
	policy := Policy{Asks: config.ClientAuth != tls.NoClientCert}
	asked.Sum(policy.hash[:0])
	return policy
}

// subjects are the names of the authorities that clients' certificates come from. Their keys cannot be read from a
// pool; crypto/tls verifies the session's chain against them again.
func subjects(config *tls.Config) [][]byte {
	if config.ClientCAs == nil {
		return [][]byte{[]byte("the system's")}
	}
	//lint:ignore SA1019 The pool is the program's own, or the difference does not matter.
	names := config.ClientCAs.Subjects()
	slices.SortFunc(names, bytes.Compare)
	return names
}

// Mark is the policy under a server name.
func (p Policy) Mark(serverName string) [Size]byte {
	return sha256.Sum256(append(p.hash[:], strings.ToLower(serverName)...))
}

// ID is where a session of this ticket is kept. Under another policy or name it is somewhere else.
func (p Policy) ID(ticket []byte, serverName string) [Size]byte {
	mark := p.Mark(serverName)
	return sha256.Sum256(append(mark[:], ticket...))
}
