#!/bin/sh
# Before the package is removed, and not before an upgrade: what `rejoin enable` did is taken back, because servers would
# miss their library at their next start.
set -eu
case "$1" in remove | 0) ;; *) exit 0 ;; esac
rejoin disable --all
[ ! -d /run/systemd/system ] || systemctl disable --now --quiet rejoin-manager.socket rejoin-manager.service \
    rejoin-cluster.service 'rejoin-stats@*.service' || true
