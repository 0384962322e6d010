cat >lighttpd-$port.conf <<END
server.document-root = "/run/site/pages"
server.bind = "127.0.0.1"
server.port = $port
server.modules = ("mod_openssl")
index-file.names = ("index.html")
ssl.engine = "enable"
ssl.pemfile = "/run/site/both.pem"
END
[ $asked = no ] || cat >>lighttpd-$port.conf <<END
ssl.verifyclient.ca-file = "/run/site/authority.pem"
ssl.verifyclient.activate = "enable"
ssl.verifyclient.enforce = "enable"
END
mkdir -p pages && echo hello >pages/index.html
exec lighttpd -D -f lighttpd-$port.conf
