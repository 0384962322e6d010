cat >application.py <<END
async def application(scope, receive, send):
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"hello"})
END
authority=
[ $asked = no ] || authority="--ssl-ca-certs /run/site/authority.pem --ssl-cert-reqs 2"
exec uvicorn --host 127.0.0.1 --port $port --lifespan off --ssl-certfile /run/site/cert.pem \
    --ssl-keyfile /run/site/key.pem $authority application:application
