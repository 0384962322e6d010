package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"
)

// A page that asks again and again, each time over a connection of its own.
const script = `<!doctype html><title>…</title><link rel="icon" href="data:,"><script>
(async () => {
  for (let visit = 0; visit < %d; visit++) {
    await new Promise((done) => setTimeout(done, 300));
    await (await fetch("/" + visit, { cache: "no-store" })).text();
  }
  document.title = "done";
})();
</script>`

// The time in which a browser learns that its next request needs another connection.
const linger = 50 * time.Millisecond

func page(pair tls.Certificate) {
	config := &tls.Config{Certificates: []tls.Certificate{pair}, NextProtos: []string{"http/1.1"}}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	check(err)
	address := listener.Addr().(*net.TCPAddr)
	datagrams, err := net.ListenUDP("udp", &net.UDPAddr{IP: address.IP, Port: address.Port})
	check(err)
	fmt.Println(address.Port)
	handler := http.HandlerFunc(func(response http.ResponseWriter, request *http.Request) {
		if request.ProtoMajor < 3 {
			response.Header().Set("Connection", "close")
		}
		fmt.Fprintf(response, script, visits*2)
	})
	go overHTTP3(pair, datagrams, handler)
	server := &http.Server{
		Handler:   handler,
		TLSConfig: config,
		ConnState: func(client net.Conn, state http.ConnState) {
			if connection, is := client.(*tls.Conn); is && state == http.StateActive {
				tell(address, client.RemoteAddr(), connection.ConnectionState().DidResume)
			}
		},
	}
	check(server.ServeTLS(listener, "", ""))
}

func overHTTP3(pair tls.Certificate, datagrams *net.UDPConn, handler http.Handler) {
	config := http3.ConfigureTLSConfig(&tls.Config{Certificates: []tls.Certificate{pair}})
	transport := &quic.Transport{Conn: datagrams}
	listener, err := transport.Listen(config, &quic.Config{})
	check(err)
	for {
		client, err := listener.Accept(context.Background())
		check(err)
		tell(datagrams.LocalAddr(), client.RemoteAddr(), client.ConnectionState().TLS.DidResume)
		go serveOne(client, handler)
	}
}

// Answers what came on a connection, and asks the browser to send no more on it.
func serveOne(client *quic.Conn, handler http.Handler) {
	server := &http3.Server{}
	server.Handler = http.HandlerFunc(func(response http.ResponseWriter, request *http.Request) {
		go server.Shutdown(context.Background())
		time.Sleep(linger)
		handler.ServeHTTP(response, request)
	})
	server.ServeQUICConn(client)
}
