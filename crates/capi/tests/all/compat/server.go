package main

import (
	"crypto/tls"
	"os"
)

func main() {
	pair, err := tls.LoadX509KeyPair("cert.pem", "key.pem")
	if err != nil {
		panic(err)
	}
	settings := &tls.Config{Certificates: []tls.Certificate{pair}}
	listener, err := tls.Listen("tcp", os.Args[1], settings)
	if err != nil {
		panic(err)
	}
	for {
		connection, err := listener.Accept()
		if err != nil {
			panic(err)
		}
		if _, err := connection.Read(make([]byte, 4096)); err == nil {
			connection.Write([]byte("HTTP/1.0 200 OK\r\n\r\nGo\n"))
		}
		connection.Close()
	}
}
