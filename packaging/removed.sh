#!/bin/sh
# After the package was removed. `purge` is Debian's; 0 is the last version's removal with rpm.
set -eu
[ ! -d /run/systemd/system ] || systemctl daemon-reload
case "$1" in purge | 0) ;; *) exit 0 ;; esac
rmdir /run/rejoin /etc/rejoin 2>/dev/null || true
! getent passwd rejoin >/dev/null || ! command -v userdel >/dev/null || userdel rejoin
