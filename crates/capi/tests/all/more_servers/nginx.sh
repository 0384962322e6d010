cat >nginx-$port.conf <<END
daemon off; user www-data; worker_processes 1; pid /run/nginx.pid; error_log /dev/stderr;
events { }
http {
  access_log off;
  ssl_certificate /run/site/cert.pem; ssl_certificate_key /run/site/key.pem;
  ssl_session_cache $cache; ssl_session_tickets $tickets;
  server {
    listen 127.0.0.1:$port ssl; return 200 hello;
    $([ $asked = no ] || echo "ssl_client_certificate /run/site/authority.pem; ssl_verify_client on;")
  }
}
END
mkdir -p /var/lib/nginx
exec nginx -c /run/site/nginx-$port.conf
