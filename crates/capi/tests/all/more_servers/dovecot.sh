cat >dovecot-$port.conf <<END
log_path = /dev/stderr
import_environment = TZ OPENSSL_CONF
protocols = imap
ssl = required
ssl_cert = </run/site/cert.pem
ssl_key = </run/site/key.pem
service imap-login {
  inet_listener imap {
    port = 0
  }
  inet_listener imaps {
    address = 127.0.0.1
    port = $port
    ssl = yes
  }
}
passdb {
  driver = static
  args = nopassword=y
}
userdb {
  driver = static
  args = uid=65534 gid=65534 home=/run/site/mail
}
mail_location = maildir:~/
first_valid_uid = 1
END
[ $asked = no ] || cat >>dovecot-$port.conf <<END
ssl_ca = </run/site/authority.pem
ssl_verify_client_cert = yes
auth_ssl_require_client_cert = yes
ssl_require_crl = no
END
mkdir -p mail
chmod 777 mail
exec dovecot -F -c dovecot-$port.conf
