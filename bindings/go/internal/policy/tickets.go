package policy

import (
	"bytes"
	"crypto/tls"
	"slices"
)

// mark begins the entry in SessionState.Extra.
var mark = []byte("rejoin-go 1\x00")

// Enter notes in a session under which policy and server name it was made, if certificates are asked for there.
func (p Policy) Enter(session *tls.SessionState, about tls.ConnectionState) {
	if p.Asks {
		session.Extra = append(session.Extra, p.entry(about))
	}
}

// Checked returns the session if it was made where certificates were asked for as they are here, and else nil.
func (p Policy) Checked(session *tls.SessionState, about tls.ConnectionState) *tls.SessionState {
	if session == nil || !p.Asks {
		return session
	}
	wanted := p.entry(about)
	if slices.ContainsFunc(session.Extra, func(extra []byte) bool { return bytes.Equal(extra, wanted) }) {
		return session
	}
	return nil
}

func (p Policy) entry(about tls.ConnectionState) []byte {
	sum := p.Mark(about.ServerName)
	return append(slices.Clone(mark), sum[:]...)
}

// Tickets are those that crypto/tls itself encrypts, of a config that may be made anew for each client. Keys that the
// config has are used, as by crypto/tls, and otherwise those of another config, which stays.
type Tickets struct{ Config, Keys *tls.Config }

// Encrypt makes a ticket.
func (t Tickets) Encrypt(asked Policy, about tls.ConnectionState, session *tls.SessionState) ([]byte, error) {
	// Without keys, each clone makes some of its own.
	ticket, err := t.Config.Clone().EncryptTicket(about, session)
	if err != nil {
		return nil, err
	}
	if opened, err := t.Config.Clone().DecryptTicket(ticket, about); err != nil || opened != nil {
		return ticket, err
	}
	asked.Enter(session, about)
	return t.Keys.EncryptTicket(about, session)
}

// Decrypt opens a ticket. It returns nil for one of others.
func (t Tickets) Decrypt(asked Policy, ticket []byte, about tls.ConnectionState) (*tls.SessionState, error) {
	session, err := t.Config.Clone().DecryptTicket(ticket, about)
	if err != nil || session != nil {
		return session, err
	}
	session, err = t.Keys.DecryptTicket(ticket, about)
	return asked.Checked(session, about), err
}
