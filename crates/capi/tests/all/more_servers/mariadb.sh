data=/run/site/data-$port
[ -e new ] || env -u OPENSSL_CONF mariadb-install-db --no-defaults --user=mysql --datadir=/run/site/new \
    --skip-test-db --auth-root-authentication-method=normal >&2
[ -e $data ] || cp -a new $data
authority=
[ $asked = no ] || authority=--ssl-ca=/run/site/authority.pem
exec mariadbd --no-defaults --user=mysql --datadir=$data --bind-address=127.0.0.1 --port=$port \
    --socket=/run/mariadb.sock --pid-file=$data/mariadb.pid --innodb-buffer-pool-size=8M \
    --innodb-log-file-size=4M --innodb-flush-log-at-trx-commit=0 \
    --ssl-cert=/run/site/cert.pem --ssl-key=/run/site/key.pem $authority
