verify=
[ $asked = no ] || verify="ca-file /run/site/authority.pem verify required"
cat >haproxy-$port.cfg <<END
global
  nbthread 1
defaults
  mode http
  timeout client 20s
  timeout connect 10s
  timeout server 10s
frontend tls
  bind 127.0.0.1:$port ssl crt /run/site/both.pem $verify
  http-request return status 200 content-type text/plain string hello
END
exec haproxy -db -f haproxy-$port.cfg
