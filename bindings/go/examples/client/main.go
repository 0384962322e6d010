// Client gets a page over a connection of the machine's TLS manager, or over one of its own if no manager runs.
//
//	go run ./examples/client https://example.com/
package main

import (
	"flag"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptrace"
	"os"

	"github.com/rejoin-tls/rejoin-go/client"
)

func main() {
	authorities := flag.String("authorities", "", "a file of the authorities that are trusted, instead of the system's")
	manager := flag.String("manager", "", "the manager's socket")
	flag.Parse()
	dialer := &client.Dialer{Manager: *manager}
	if *authorities != "" {
		trusted, err := os.ReadFile(*authorities)
		if err != nil {
			log.Fatal(err)
		}
		dialer.Authorities = trusted
	}
	request, err := http.NewRequest(http.MethodGet, flag.Arg(0), nil)
	if err != nil {
		log.Fatal(err)
	}
	request = request.WithContext(httptrace.WithClientTrace(request.Context(), &httptrace.ClientTrace{GotConn: describe}))
	web := &http.Client{Transport: &http.Transport{DialTLSContext: dialer.DialTLSContext}}
	answer, err := web.Do(request)
	if err != nil {
		log.Fatal(err)
	}
	defer answer.Body.Close()
	if _, err := io.Copy(os.Stdout, answer.Body); err != nil {
		log.Fatal(err)
	}
}

func describe(got httptrace.GotConnInfo) {
	if conn, ok := got.Conn.(*client.Conn); ok {
		fmt.Fprintf(os.Stderr, "%s %s\n", conn.Session.Version, conn.Session.Why)
		return
	}
	fmt.Fprintln(os.Stderr, "connected directly")
}
