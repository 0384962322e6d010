# Its settings, of which each is one word.
cat >vsftpd-$port.conf <<END
listen=YES
listen_address=127.0.0.1
listen_port=$port
background=NO
anonymous_enable=YES
ftp_username=nobody
nopriv_user=nobody
secure_chroot_dir=/run/site/empty
ssl_enable=YES
implicit_ssl=YES
allow_anon_ssl=YES
ssl_ciphers=HIGH
rsa_cert_file=/run/site/cert.pem
rsa_private_key_file=/run/site/key.pem
END
[ $asked = no ] || cat >>vsftpd-$port.conf <<END
ca_certs_file=/run/site/authority.pem
require_cert=YES
validate_cert=YES
END
mkdir -p empty
exec vsftpd vsftpd-$port.conf
