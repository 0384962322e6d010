programs=/usr/lib/postgresql/15/bin data=/run/site/data-$port
as_postgres() { setpriv --reuid=postgres --regid=postgres --clear-groups "$@"; }
if [ ! -e new ]; then
    install -d -o postgres -m 700 new
    as_postgres env -u OPENSSL_CONF LC_ALL=C $programs/initdb -D /run/site/new -U postgres -A trust --no-sync >&2
fi
[ -e $data ] || cp -a new $data
install -o postgres -m 600 key.pem key-postgres.pem
verify= authority=
[ $asked = no ] || verify=clientcert=verify-ca authority=/run/site/authority.pem
echo "hostssl all all 127.0.0.1/32 trust $verify" >$data/pg_hba.conf
exec setpriv --reuid=postgres --regid=postgres --clear-groups $programs/postgres -D $data \
    -c listen_addresses=127.0.0.1 -c port=$port -c unix_socket_directories= -c fsync=off \
    -c ssl=on -c ssl_cert_file=/run/site/cert.pem -c ssl_key_file=/run/site/key-postgres.pem \
    -c ssl_ca_file=$authority
