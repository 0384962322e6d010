#!/bin/sh
# Installs the package in a fresh system, as its README says, sees what it does, and removes it again. Each finding is a
# line in /check/told.
set -u
exec 2>/check/log >&2
set -x
say() { echo "$*" >>/check/told; }
# All files but those that a system changes by itself.
files() {
    find / -xdev \( -path /proc -o -path /sys -o -path /check -o -path /run -o -path /tmp -o -path /var/tmp -o -path /var/cache \
        -o -path /var/lib/apt -o -path /var/lib/dpkg -o -path /var/log -o -path /var/lib/systemd \
        -o -path /var/lib/nginx -o -path /etc/mtab \) -prune -o -print
    find /dev/shm /etc/rejoin /run/rejoin 2>/dev/null
    cut -d: -f1 /etc/passwd /etc/group
}
ask() { printf 'GET / HTTP/1.0\r\n\r\n' | openssl s_client -connect 127.0.0.1:443 -ign_eof "$@" 2>&1; }
reused() { grep -q '^Reused' && echo resumed || echo not; }

# What the system's operator has already: four servers.
echo 127.0.0.1 localhost >/etc/hosts
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 30 -subj /CN=localhost -addext subjectAltName=DNS:localhost \
    -keyout /etc/ssl/private/site.key -out /etc/ssl/certs/site.pem
cat >/etc/nginx/conf.d/site.conf <<'EOF'
server {
    listen 443 ssl;
    ssl_certificate /etc/ssl/certs/site.pem;
    ssl_certificate_key /etc/ssl/private/site.key;
    return 200 "process $pid\n";
}
EOF
cat /etc/ssl/certs/site.pem /etc/ssl/private/site.key >/etc/ssl/private/site.both.pem
cat >>/etc/haproxy/haproxy.cfg <<'EOF'

frontend site
    bind :8443 ssl crt /etc/ssl/private/site.both.pem
    http-request return status 200 content-type text/plain string hello
EOF
echo 'Listen 8444' >/etc/apache2/ports.conf
cat >/etc/apache2/sites-available/000-default.conf <<'EOF'
<VirtualHost *:8444>
    ServerName localhost
    SSLEngine on
    SSLCertificateFile /etc/ssl/certs/site.pem
    SSLCertificateKeyFile /etc/ssl/private/site.key
</VirtualHost>
EOF
a2enmod --quiet ssl
install -o mosquitto -m 600 /etc/ssl/private/site.key /etc/mosquitto/site.key
cat >/etc/mosquitto/conf.d/site.conf <<'EOF'
listener 8883
certfile /etc/ssl/certs/site.pem
keyfile /etc/mosquitto/site.key
allow_anonymous true
EOF
systemctl restart nginx haproxy apache2 mosquitto
ask -tls1_3 -sess_out /tmp/before >/dev/null
systemctl reload nginx; sleep 1
say without-after-reload "$(ask -tls1_3 -sess_in /tmp/before | reused)"
files | sort >/tmp/files-before

# The two commands.
apt-get install --yes /check/rejoin_*.deb </dev/null; say installed $?
rejoin enable nginx --now >/check/enabled 2>&1; say enabled $?

for version in tls1_2 tls1_3; do
    ask -$version -sess_out /tmp/$version >/dev/null
    say $version-again "$(ask -$version -sess_in /tmp/$version | reused)"
done
systemctl reload nginx; sleep 1
for version in tls1_2 tls1_3; do
    say $version-after-reload "$(ask -$version -sess_in /tmp/$version | reused)"
done
systemctl restart nginx
# A ticket is used again and again, until all workers have had it.
ask -tls1_3 -sess_in /tmp/tls1_3 >/dev/null
for turn in $(seq 40); do
    ask -tls1_3 -sess_in /tmp/tls1_3
done | awk '/^Reused/ { n++ } /^process/ { if (!seen[$2]++) workers++ } END { print "turns-resumed", n + 0; print "workers", workers + 0 }' >>/check/told
for server in haproxy apache mosquitto; do
    rejoin enable $server --now >/check/enabled-$server 2>&1; say $server $? "$(grep -c ' resumes$' /check/enabled-$server)"
done
rejoin status nginx >/check/status; say status $?
rejoin doctor nginx >/check/doctor; say doctor $?
rejoin doctor 127.0.0.1 >/check/doctor-outside; say doctor-outside $?
rejoin stats nginx >/check/stats; say stats $?
man -w rejoin >/dev/null 2>&1 || ls /usr/share/man/man1/rejoin.1.gz; say manual $?
# Programs that are not changed, in a shell that is started now. The manager starts when the first one asks.
rejoin enable clients >/check/clients; say clients $?
(
    . /etc/profile.d/rejoin.sh
    export REJOIN_DEBUG=1
    for turn in 1 2; do
        curl --silent --show-error --cacert /etc/ssl/certs/site.pem https://localhost/
    done
) >/check/curl 2>&1
say curl "$(grep -c '^process' /check/curl) $(grep -c 'through the manager: resumed' /check/curl)"
rejoin stats --manager >/check/manager; say manager $? "$(systemctl is-active rejoin-manager.service)"
journalctl --no-pager --unit rejoin-manager.service
rejoin disable clients; say clients-disabled $?
systemctl stop rejoin-manager.service rejoin-manager.socket
# A program of C that is linked with the library finds it.
ldconfig -p | grep -q 'librejoin.so.0'; say linkable $?

# An operator's mistakes and a machine's troubles. Each is refused or survived, in one line.
cat >/etc/systemd/system/own@.service <<'EOF'
[Service]
ExecStart=/usr/bin/openssl s_server -quiet -accept 127.0.0.1:%i -cert /etc/ssl/certs/site.pem -key /etc/ssl/private/site.key
EOF
systemctl daemon-reload
(umask 077; rejoin enable own@9001 --now) >/check/own 2>&1; say own $? "$(stat -c %a /etc/rejoin/own@9001.cnf)"
sed -i 's/^capacity.*/capacity = 8MiB # mine/' /etc/rejoin/own@9001.cnf
cache=$(sed -n 's/^cache *= *\([^ #]*\).*/\1/p' /etc/rejoin/own@9001.cnf)
rejoin enable own@9001 >>/check/own 2>&1; say own-kept "$(grep -c mine /etc/rejoin/own@9001.cnf)"
rejoin disable own@9001 >>/check/own 2>&1; say own-stub $? "$(grep -c librejoin /etc/rejoin/own@9001.cnf) $(grep -c include /etc/rejoin/own@9001.cnf)"
rejoin share "$cache" --socket /run/own.sock >/check/own-share 2>&1 & sleep 1
rejoin disable own@9001 --now >>/check/own 2>&1; say own-disabled $? "$(ls /etc/rejoin | grep -c own)"
say own-shared "$(rejoin store list | grep -c "$cache")"
kill $!; wait $!; rejoin store remove "$cache"
rejoin enable own@9002 --now >>/check/own 2>&1; say own-again $?
systemctl stop own@9002; rm /etc/systemd/system/own@.service; systemctl daemon-reload
sed -i 's/^http {/http { no_such_setting;/' /etc/nginx/nginx.conf
rejoin disable nginx >/check/broken 2>&1
rejoin enable nginx --now >>/check/broken 2>&1; say broken $? "$(ls /etc/systemd/system/nginx.service.d 2>/dev/null | grep -c rejoin)"
sed -i 's/^http { no_such_setting;/http {/' /etc/nginx/nginx.conf
systemctl reset-failed nginx; systemctl restart nginx
rejoin enable nginx --now >>/check/broken 2>&1; say mended $?
su -s /bin/sh nobody -c 'rejoin doctor nginx' >/check/nobody 2>&1; say nobody $?
rejoin enable no-such-unit >/check/wrong 2>&1; say wrong $? "$(wc -l </check/wrong)"
systemctl enable --now rejoin-stats@nginx 2>/dev/null
systemctl enable --now rejoin-share@nginx 2>/dev/null
say share "$(systemctl is-active rejoin-share@nginx) $(stat -c %U /run/rejoin/share.sock)"
journalctl --no-pager --unit rejoin-share@nginx.service
# A connection goes on through the manager while the package is removed.
systemctl start rejoin-manager.socket
(sleep 30 | rejoin connect --ca /etc/ssl/certs/site.pem localhost:443) >/dev/null 2>&1 &
sleep 1
apt-get purge --yes rejoin </dev/null; say purged $?
say left-running "$(systemctl list-units --plain --no-legend 'rejoin*' | grep -c running)"
rm -f /etc/systemd/system/own@.service
systemctl restart nginx haproxy apache2 mosquitto; say servers-afterwards $?
files | sort >/tmp/files-after
diff /tmp/files-before /tmp/files-after | sed 's/^/left /' >>/check/told
say done
