cat >stunnel-$port.conf <<END
foreground = yes
syslog = no
pid =
[hello]
accept = 127.0.0.1:$port
cert = /run/site/both.pem
exec = /bin/echo
execArgs = echo hello
END
[ $asked = no ] || cat >>stunnel-$port.conf <<END
CAfile = /run/site/authority.pem
verifyChain = yes
END
exec stunnel4 stunnel-$port.conf
