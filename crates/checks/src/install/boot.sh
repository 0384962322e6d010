# Boots a copy of ROOT that vanishes afterwards, with a systemd of its own, no network but a loopback, and FOLDER as
# /check: its service runs /check/script and then powers off. Standard output is the console.
set -eu
umount --recursive --lazy /sys/fs/cgroup 2>/dev/null || true
mount -t cgroup2 cgroup2 /sys/fs/cgroup
mount -t tmpfs tmpfs /run
exec systemd-nspawn --quiet --directory "$ROOT" --volatile=overlay --boot --private-network --register=no --keep-unit \
    --machine rejoin-check --bind "$FOLDER:/check" </dev/null
