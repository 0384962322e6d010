package main

import (
	"bufio"
	"crypto/rand"
	"crypto/tls"
	"io"
	"net"
)

// A way in which TLS over TCP is spoken.
type way struct {
	version uint16
	change  func(server *tls.Config)
}

func overTCP(pair tls.Certificate) {
	as := func(*tls.Config) {}
	// The client's key shares are of other groups: the server asks for another one.
	retry := func(server *tls.Config) { server.CurvePreferences = []tls.CurveID{tls.CurveP384} }
	none := func(server *tls.Config) { server.SessionTicketsDisabled = true }
	for _, way := range []way{
		{tls.VersionTLS10, as}, {tls.VersionTLS11, as}, {tls.VersionTLS12, as}, {tls.VersionTLS13, as},
		{tls.VersionTLS13, retry}, {tls.VersionTLS12, none}, {tls.VersionTLS13, none},
	} {
		way.visit(pair)
	}
}

func (way way) visit(pair tls.Certificate) {
	server := &tls.Config{
		Certificates: []tls.Certificate{pair},
		MinVersion:   way.version,
		MaxVersion:   way.version,
		NextProtos:   []string{"x"},
	}
	way.change(server)
	newKey(server)
	listener, err := tls.Listen("tcp", "127.0.0.1:0", server)
	check(err)
	defer listener.Close()
	go serve(listener)
	for range clients {
		client := newcomer()
		client.MinVersion = tls.VersionTLS10
		for range visits {
			call(listener.Addr(), client)
		}
		// What the client offers now is declined.
		newKey(server)
		call(listener.Addr(), client)
	}
}

func newKey(server *tls.Config) {
	var key [32]byte
	rand.Read(key[:])
	server.SetSessionTicketKeys([][32]byte{key})
}

func serve(listener net.Listener) {
	for {
		client, err := listener.Accept()
		if err != nil {
			return
		}
		go func() {
			defer client.Close()
			line, _ := bufio.NewReader(client).ReadString('\n')
			io.WriteString(client, line)
		}()
	}
}

func call(server net.Addr, config *tls.Config) {
	client, err := tls.Dial("tcp", server.String(), config)
	check(err)
	defer client.Close()
	_, err = io.WriteString(client, "question\n")
	check(err)
	_, err = io.ReadAll(client)
	check(err)
	tell(server, client.LocalAddr(), client.ConnectionState().DidResume)
}
