package main

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"

	"github.com/quic-go/quic-go"
)

func overQUIC(pair tls.Certificate) {
	for _, version := range []quic.Version{quic.Version1, quic.Version2} {
		// A Retry is asked for of each client, or of none.
		for _, validates := range []bool{false, true} {
			visitQUIC(pair, version, validates)
		}
	}
}

func visitQUIC(pair tls.Certificate, version quic.Version, validates bool) {
	server := &tls.Config{Certificates: []tls.Certificate{pair}, NextProtos: []string{"x"}}
	transport := &quic.Transport{Conn: socket()}
	if validates {
		transport.VerifySourceAddress = anyone
	}
	listener, err := transport.Listen(server, &quic.Config{})
	check(err)
	defer transport.Close()
	go serveQUIC(listener)
	for range clients {
		client := newcomer()
		for range visits {
			callQUIC(listener, client, version)
		}
	}
}

func serveQUIC(listener *quic.Listener) {
	for {
		client, err := listener.Accept(context.Background())
		if err != nil {
			return
		}
		go func() {
			stream, err := client.AcceptStream(context.Background())
			if err != nil {
				return
			}
			io.Copy(stream, stream)
			stream.Close()
		}()
	}
}

func callQUIC(listener *quic.Listener, config *tls.Config, version quic.Version) {
	ctx := context.Background()
	client, err := quic.DialAddr(ctx, listener.Addr().String(), config, &quic.Config{Versions: []quic.Version{version}})
	check(err)
	stream, err := client.OpenStreamSync(ctx)
	check(err)
	_, err = io.WriteString(stream, "question\n")
	check(err)
	check(stream.Close())
	_, err = io.ReadAll(stream)
	check(err)
	tell(listener.Addr(), client.LocalAddr(), client.ConnectionState().TLS.DidResume)
	err = client.CloseWithError(0, "")
	if err != nil && !errors.Is(err, context.Canceled) {
		check(err)
	}
}

func anyone(net.Addr) bool { return true }

func socket() net.PacketConn {
	socket, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	check(err)
	return socket
}
