package sessions

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/sha256"
)

// The share keeps sessions sealed under their tickets, which it never sees: it cannot read them, and a session that was
// damaged is not found, instead of failing its connection.

func seal(ticket, session []byte) ([]byte, error) {
	sealing, err := under(ticket)
	if err != nil {
		return nil, err
	}
	return sealing.Seal(nil, once[:], session, nil), nil
}

func unseal(ticket, sealed []byte) ([]byte, error) {
	opening, err := under(ticket)
	if err != nil {
		return nil, err
	}
	return opening.Open(nil, once[:], sealed, nil)
}

// A ticket is random, and seals one session.
var once [12]byte

func under(ticket []byte) (cipher.AEAD, error) {
	key := sha256.Sum256(append([]byte("rejoin-go session 1\x00"), ticket...))
	block, err := aes.NewCipher(key[:])
	if err != nil {
		return nil, err
	}
	return cipher.NewGCM(block)
}
