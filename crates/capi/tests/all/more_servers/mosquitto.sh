cat >mosquitto-$port.conf <<END
user mosquitto
allow_anonymous true
listener $port 127.0.0.1
certfile /run/site/cert.pem
keyfile /run/site/key.pem
END
[ $asked = no ] || cat >>mosquitto-$port.conf <<END
cafile /run/site/authority.pem
require_certificate true
END
exec mosquitto -c mosquitto-$port.conf
