#!/bin/sh
# After the package was removed. `purge` is Debian's; 0 is the last version's removal with rpm.
[ ! -d /run/systemd/system ] || systemctl daemon-reload || true
case "$1" in purge | 0) ;; *) exit 0 ;; esac
# Settings that `rejoin disable` left to servers that still run.
grep --files-with-matches '^# Written by `rejoin enable ' /etc/rejoin/*.cnf 2>/dev/null | while read -r file; do
    rm -f "$file"
done
# Of shares and exporters, which may not remove them themselves: the folder is root's.
rm -f /run/rejoin/*.sock /run/rejoin/*.sock.lock
rmdir /run/rejoin /etc/rejoin 2>/dev/null || true
! getent passwd rejoin >/dev/null || ! command -v userdel >/dev/null || userdel rejoin 2>/dev/null || true
exit 0
