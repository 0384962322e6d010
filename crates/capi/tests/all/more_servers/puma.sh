authority=verify_mode=none
[ $asked = no ] || authority="ca=/run/site/authority.pem&verify_mode=force_peer"
cat >puma-$port.rb <<END
require "openssl"
bind "ssl://127.0.0.1:$port?cert=/run/site/cert.pem&key=/run/site/key.pem&$authority"
threads 1, 1
app { |environment| [200, {}, ["hello"]] }
END
exec puma -C puma-$port.rb
