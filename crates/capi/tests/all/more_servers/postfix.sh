cat >/etc/postfix/main.cf <<END
compatibility_level = 3.6
mail_owner = postfix
setgid_group = postdrop
myhostname = localhost
inet_interfaces = 127.0.0.1
inet_protocols = ipv4
import_environment = MAIL_CONFIG MAIL_DEBUG MAIL_LOGTAG TZ OPENSSL_CONF
smtpd_tls_cert_file = /run/site/cert.pem
smtpd_tls_key_file = /run/site/key.pem
smtpd_tls_security_level = encrypt
END
[ $asked = no ] || cat >>/etc/postfix/main.cf <<END
smtpd_tls_CAfile = /run/site/authority.pem
smtpd_tls_req_ccert = yes
END
# As Debian's, `smtpd` gives up root and changes its root folder.
cat >/etc/postfix/master.cf <<END
127.0.0.1:$port inet n - y - - smtpd -o smtpd_tls_wrappermode=yes
tlsmgr unix - - y 1000? 1 tlsmgr
rewrite unix - - y - - trivial-rewrite
anvil unix - - y - 1 anvil
pickup unix n - y 60 1 pickup
cleanup unix n - y - 0 cleanup
qmgr unix n - n 300 1 qmgr
bounce unix - - y - 0 bounce
proxymap unix - - n - - proxymap
END
mkdir -p /var/spool/postfix /var/lib/postfix
chown postfix:postfix /var/lib/postfix
chgrp postdrop /usr/sbin/postdrop /usr/sbin/postqueue
chmod 2755 /usr/sbin/postdrop /usr/sbin/postqueue
MAIL_CONFIG=/etc/postfix postfix check
# It makes a session of its own, which the leader of a process group cannot.
MAIL_CONFIG=/etc/postfix /usr/lib/postfix/sbin/master -s &
trap "kill $!" TERM
wait $! || wait $!
