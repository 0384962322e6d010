authority=
[ $asked = no ] || authority=--CA-file=/run/site/authority.pem
exec setpriv --reuid=turnserver --regid=turnserver --clear-groups turnserver -n --log-file=stdout \
    --listening-ip=127.0.0.1 --relay-ip=127.0.0.1 --tls-listening-port=$port --no-udp --no-tcp --no-dtls --no-cli \
    --pidfile=/dev/null --cert=/run/site/cert.pem --pkey=/run/site/key.pem $authority
