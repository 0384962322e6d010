// Package testtls has certificates, servers and visits for tests.
package testtls

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"testing"
	"time"
)

// Authority signs certificates.
type Authority struct {
	Certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

// NewAuthority makes one of this name.
func NewAuthority(t testing.TB, name string) *Authority {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &Authority{certificate, key}
}

// Pool has this authority alone.
func (a *Authority) Pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.Certificate)
	return pool
}

// PEM is the authority's certificate.
func (a *Authority) PEM() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.Certificate.Raw})
}

// Issue makes a certificate for these names, of a server or a client. The address is 127.0.0.1.
func (a *Authority) Issue(t testing.TB, names ...string) tls.Certificate {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: names[0]}, DNSNames: names,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore:   time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.Certificate, &key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// PEMOf is a certificate's chain and its key.
func PEMOf(t testing.TB, certificate tls.Certificate) (chain, key []byte) {
	der, err := x509.MarshalPKCS8PrivateKey(certificate.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate.Certificate[0]}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
}

// Serve greets whoever connects to a listener of TLS connections, and returns its address.
func Serve(t testing.TB, listener net.Listener) string {
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				if conn.(*tls.Conn).Handshake() == nil {
					conn.Write([]byte("hello"))
				}
			}()
		}
	}()
	return listener.Addr().String()
}

// Listen is a TCP listener on the loopback.
func Listen(t testing.TB) net.Listener {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return listener
}

// Client is a client's config for one version, which remembers sessions.
func Client(authority *Authority, name string, version uint16) *tls.Config {
	return &tls.Config{
		RootCAs: authority.Pool(), ServerName: name, MinVersion: version, MaxVersion: version,
		ClientSessionCache: tls.NewLRUClientSessionCache(8),
	}
}

// Pinned has a config ask for a client certificate, and refuse each that is not of this name by its own check, which
// crypto/tls does not call when a session is resumed.
func Pinned(config *tls.Config, wanted string) *tls.Config {
	config.ClientAuth = tls.RequireAnyClientCert
	config.VerifyPeerCertificate = func(raw [][]byte, _ [][]*x509.Certificate) error {
		certificate, err := x509.ParseCertificate(raw[0])
		if err == nil && certificate.Subject.CommonName != wanted {
			err = fmt.Errorf("not %s", wanted)
		}
		return err
	}
	return config
}

// Visit connects, reads what the server says, and tells whether the session was resumed.
func Visit(address string, config *tls.Config) (bool, error) {
	conn, err := tls.DialWithDialer(&net.Dialer{Timeout: 10 * time.Second}, "tcp", address, config)
	if err != nil {
		return false, err
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(10 * time.Second))
	if _, err := io.ReadAll(conn); err != nil {
		return false, err
	}
	return conn.ConnectionState().DidResume, nil
}

// Visits connects to one address after the other, and tells whether each was resumed.
func Visits(t testing.TB, config *tls.Config, addresses ...string) []bool {
	t.Helper()
	var resumed []bool
	for _, address := range addresses {
		did, err := Visit(address, config)
		if err != nil {
			t.Fatal(err)
		}
		resumed = append(resumed, did)
	}
	return resumed
}

// Versions are those that tests are made with.
var Versions = map[string]uint16{"1.2": tls.VersionTLS12, "1.3": tls.VersionTLS13}
