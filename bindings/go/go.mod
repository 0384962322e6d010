module github.com/rejoin-tls/rejoin-go

go 1.23
