cat >application.py <<END
def application(environ, start_response):
    start_response("200 OK", [])
    return [b"hello"]
END
authority=
[ $asked = no ] || authority="--ca-certs /run/site/authority.pem --cert-reqs 2"
exec gunicorn --bind 127.0.0.1:$port --certfile /run/site/cert.pem --keyfile /run/site/key.pem $authority \
    application:application
