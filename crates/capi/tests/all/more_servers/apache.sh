mkdir -p pages /var/run/apache2
echo hello >pages/index.html
cat >apache-$port.conf <<END
LoadModule mpm_event_module /usr/lib/apache2/modules/mod_mpm_event.so
LoadModule authz_core_module /usr/lib/apache2/modules/mod_authz_core.so
LoadModule dir_module /usr/lib/apache2/modules/mod_dir.so
LoadModule socache_shmcb_module /usr/lib/apache2/modules/mod_socache_shmcb.so
LoadModule ssl_module /usr/lib/apache2/modules/mod_ssl.so
ServerRoot /run/site
ServerName localhost
PidFile /run/apache.pid
ErrorLog /dev/stderr
DocumentRoot /run/site/pages
DirectoryIndex index.html
Listen 127.0.0.1:$port
Mutex file:/run default
User www-data
Group www-data
SSLEngine on
SSLCertificateFile /run/site/cert.pem
SSLCertificateKeyFile /run/site/key.pem
SSLSessionCache none
SSLSessionTickets on
END
[ $asked = no ] || cat >>apache-$port.conf <<END
SSLCACertificateFile /run/site/authority.pem
SSLVerifyClient require
END
exec apache2 -D FOREGROUND -f /run/site/apache-$port.conf
