#!/bin/sh
# Before the package is removed, and not before an upgrade: what `rejoin enable` did is taken back, because servers would
# miss their library at their next start. Nothing here keeps the package from being removed.
case "$1" in remove | 0) ;; *) exit 0 ;; esac
rejoin disable --all || echo "rejoin: not all was taken back: see above" >&2
# Programs of users who went through the manager on their own would look for the library for ever, and say so each time.
getent passwd | while IFS=: read -r user _ _ _ _ home _; do
    file=$home/.config/environment.d/60-rejoin.conf
    [ -f "$file" ] && [ ! -L "$file" ] || continue
    echo "rejoin: $user must remove $file, and log in again: programs would miss the library that it names" >&2
done
[ -d /run/systemd/system ] || exit 0
instances=$(systemctl list-units --all --plain --no-legend 'rejoin-stats@*' 'rejoin-share@*' | cut -d ' ' -f 1)
links=$(cd /etc/systemd/system/multi-user.target.wants 2>/dev/null && ls -d rejoin-stats@* rejoin-share@* 2>/dev/null)
for unit in rejoin-manager.socket rejoin-manager.service rejoin-cluster.service $instances $links; do
    systemctl --quiet disable "$unit" 2>/dev/null || true
    systemctl stop --no-block "$unit" 2>/dev/null || true
done
# Connections through the manager do not hold it up: at the second signal it ends at once.
systemctl kill --signal TERM rejoin-manager.service 2>/dev/null || true
for turn in 1 2 3 4 5 6 7 8 9 10; do
    systemctl --quiet is-active rejoin-manager.service || break
    sleep 0.5
done
exit 0
