# The accounts that the packages' own scripts would make.
number=970
for user in dovecot dovenull mosquitto mysql postdrop postfix postgres turnserver; do
    number=$((number + 1))
    getent group $user >/dev/null || echo "$user:x:$number:" >>/etc/group
    getent passwd $user >/dev/null ||
        echo "$user:x:$number:$(getent group $user | cut -d: -f3)::/nonexistent:/usr/sbin/nologin" >>/etc/passwd
done
