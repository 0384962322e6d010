// Stacks makes connections of Go's TLS and of quic-go, and tells for each what its client says.
//
//	stacks tls CERTIFICATE KEY
//	stacks quic CERTIFICATE KEY
//	stacks page CERTIFICATE KEY
//
// Each connection is a line of JSON: the ports of its server and its client, and if it was resumed. `page` is a server for
// a browser, over TCP and UDP at the port that its first line names; its lines are what the server says.
package main

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"log"
	"net"
	"os"
	"sync"
)

const name = "a.example"

// Visits of a client: the first is full, because it begins with no session.
const (
	clients = 4
	visits  = 4
)

type connection struct {
	Server  int  `json:"server"`
	Client  int  `json:"client"`
	Resumed bool `json:"resumed"`
}

var output sync.Mutex

func tell(server, client net.Addr, resumed bool) {
	output.Lock()
	defer output.Unlock()
	line, err := json.Marshal(connection{port(server), port(client), resumed})
	check(err)
	fmt.Println(string(line))
}

func port(address net.Addr) int {
	switch address := address.(type) {
	case *net.TCPAddr:
		return address.Port
	case *net.UDPAddr:
		return address.Port
	}
	return 0
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func main() {
	if len(os.Args) != 4 {
		log.Fatal("stacks tls|quic|page CERTIFICATE KEY")
	}
	pair, err := tls.LoadX509KeyPair(os.Args[2], os.Args[3])
	check(err)
	switch os.Args[1] {
	case "tls":
		overTCP(pair)
	case "quic":
		overQUIC(pair)
	case "page":
		page(pair)
	default:
		log.Fatalf("%s is unknown", os.Args[1])
	}
}

// A client that begins without sessions.
func newcomer() *tls.Config {
	return &tls.Config{
		ServerName:         name,
		InsecureSkipVerify: true,
		ClientSessionCache: tls.NewLRUClientSessionCache(8),
		NextProtos:         []string{"x"},
	}
}
