# Stands in for the scripts of the packages that were extracted and not installed: accounts, certificates, and what the
# servers find when they start for the first time.
. "$(dirname "$PREPARED")/../more_servers/accounts.sh"

install -d -m 700 /etc/ssl/private
openssl req -x509 -newkey rsa:2048 -nodes -days 30 -subj /CN=localhost \
    -keyout /etc/ssl/private/ssl-cert-snakeoil.key -out /etc/ssl/certs/ssl-cert-snakeoil.pem
getent group ssl-cert || echo "ssl-cert:x:969:postgres" >>/etc/group
chgrp ssl-cert /etc/ssl/private /etc/ssl/private/ssl-cert-snakeoil.key
chmod 710 /etc/ssl/private
chmod 640 /etc/ssl/private/ssl-cert-snakeoil.key

chmod 1777 /tmp
# Here are copies, if the machine has such a server itself.
rm -rf /etc/postgresql /var/lib/postgresql /etc/mysql/my.cnf /var/lib/mysql /usr/bin/galera_recovery
install -d -o postgres -g postgres -m 755 /var/lib/postgresql /var/log/postgresql /run/postgresql /etc/postgresql
pg_createcluster 15 main

ln -sf mariadb.cnf /etc/mysql/my.cnf
install -d -o mysql -g mysql -m 755 /run/mysqld /var/lib/mysql /var/log/mysql
mariadb-install-db --user=mysql --skip-test-db

cp /usr/share/postfix/main.cf.debian /etc/postfix/main.cf
cp /usr/share/postfix/master.cf.dist /etc/postfix/master.cf
cp /usr/share/postfix/dynamicmaps.cf /etc/postfix/dynamicmaps.cf
cat >>/etc/postfix/main.cf <<END
inet_interfaces = loopback-only
smtpd_tls_cert_file = /etc/ssl/certs/ssl-cert-snakeoil.pem
smtpd_tls_key_file = /etc/ssl/private/ssl-cert-snakeoil.key
smtpd_tls_security_level = may
END
install -d -o postfix -g postfix /var/lib/postfix
install -d /var/spool/postfix
chgrp postdrop /usr/sbin/postdrop /usr/sbin/postqueue
chmod 2755 /usr/sbin/postdrop /usr/sbin/postqueue

cp -r /usr/share/dovecot/dovecot.conf /usr/share/dovecot/conf.d /etc/dovecot/
echo 'protocols = $protocols imap' >/usr/share/dovecot/protocols.d/imapd.protocol
ln -s /etc/ssl/certs/ssl-cert-snakeoil.pem /etc/dovecot/private/dovecot.pem
ln -s /etc/ssl/private/ssl-cert-snakeoil.key /etc/dovecot/private/dovecot.key

systemctl start postgresql@15-main mariadb postfix@- dovecot
