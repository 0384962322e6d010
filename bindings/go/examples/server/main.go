// Server is an HTTPS server whose clients resume at every server of the same context.
//
//	go run ./examples/server --cert cert.pem --key key.pem --context shop
//	go run ./examples/server --cert cert.pem --key key.pem --context shop --sessions
package main

import (
	"context"
	"crypto/tls"
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"

	"github.com/rejoin-tls/rejoin-go/sessions"
	"github.com/rejoin-tls/rejoin-go/share"
	"github.com/rejoin-tls/rejoin-go/ticketkeys"
)

func main() {
	address := flag.String("listen", "127.0.0.1:8443", "where to listen")
	cert := flag.String("cert", "cert.pem", "the certificate's chain")
	key := flag.String("key", "key.pem", "its key")
	socket := flag.String("share", share.Socket, "the socket of `rejoin share`")
	name := flag.String("context", "example", "servers of one context resume each other's sessions")
	kept := flag.Bool("sessions", false, "keep sessions in the cache instead of sharing ticket keys")
	version := flag.String("version", "", "1.2 or 1.3 alone")
	flag.Parse()

	pair, err := tls.LoadX509KeyPair(*cert, *key)
	if err != nil {
		log.Fatal(err)
	}
	config := &tls.Config{Certificates: []tls.Certificate{pair}, NextProtos: []string{"h2", "http/1.1"}}
	switch *version {
	case "1.2":
		config.MaxVersion = tls.VersionTLS12
	case "1.3":
		config.MinVersion = tls.VersionTLS13
	}
	inner, err := net.Listen("tcp", *address)
	if err != nil {
		log.Fatal(err)
	}
	listener, err := attached(inner, config, share.Options{Socket: *socket, Context: *name}, *kept)
	if err != nil {
		log.Fatal(err)
	}
	server := &http.Server{Handler: sessions.NextConnect(http.HandlerFunc(greet)), ConnContext: sessions.ConnContext}
	log.Fatal(server.Serve(listener))
}

func attached(inner net.Listener, config *tls.Config, options share.Options, kept bool) (net.Listener, error) {
	ctx := context.Background()
	if !kept {
		if _, err := ticketkeys.Follow(ctx, ticketkeys.Options{Options: options}, config); err != nil {
			return nil, err
		}
		return tls.NewListener(inner, config), nil
	}
	cache, err := sessions.Open(ctx, sessions.Options{Options: options})
	if err != nil {
		return nil, err
	}
	return cache.Listener(inner, config)
}

func greet(answer http.ResponseWriter, request *http.Request) {
	fmt.Fprintf(answer, "resumed: %v\n", request.TLS.DidResume)
}
