#!/bin/sh
# After an installation or an upgrade. No service is started: `rejoin enable` does that.
set -eu
case "$1" in configure | 1 | 2) ;; *) exit 0 ;; esac
! command -v systemd-sysusers >/dev/null || systemd-sysusers rejoin.conf
! command -v systemd-tmpfiles >/dev/null || systemd-tmpfiles --create rejoin.conf
[ ! -d /run/systemd/system ] || systemctl daemon-reload
# Whoever runs now goes on with the version it has.
[ ! -d /run/systemd/system ] || ! systemctl --quiet is-active rejoin-manager.service || {
    echo "rejoin: 'systemctl restart rejoin-manager' starts the new version; connections that are open go on"
}
