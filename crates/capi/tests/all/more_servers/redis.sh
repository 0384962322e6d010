exec redis-server --port 0 --bind 127.0.0.1 --tls-port $port --save "" --dir /run/site \
    --tls-cert-file /run/site/cert.pem --tls-key-file /run/site/key.pem \
    --tls-ca-cert-file /run/site/authority.pem --tls-auth-clients $asked
