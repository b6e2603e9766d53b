#!/bin/sh
# Both commands of the README on a bare Debian 12: a chroot with git, gcc, make and sudo, and an ordinary user in it.
#   scripts/bare.sh [FOLDER]     FOLDER is new, or absent: then one is made and removed; needs root and debootstrap
# Clones the commit at HEAD, runs `make demo` and `make test`, prints what they print, their times and the disk they take. What is
# installed on a developer's machine hides missing steps of the setup; run this before a change of them is called done.
set -eu
repository=$(cd "$(dirname "$0")/.." && pwd)
if [ "$(id -u)" != 0 ] || ! command -v debootstrap >/dev/null; then
    echo 'bare.sh: needs root and debootstrap' >&2
    exit 2
fi
given=${1:-}
folder=$given
[ -n "$folder" ] || { folder=$(mktemp -d) && chmod 755 "$folder"; } # mktemp keeps others out: the visitor too
[ -z "$(ls -A "$folder" 2>/dev/null)" ] || { echo "bare.sh: $folder is not empty" >&2; exit 2; }

# shellcheck disable=SC2317 # the trap calls it
finish() {
    for name in dev/shm dev/pts dev sys proc; do
        umount "$folder/$name" 2>/dev/null || true
    done
    [ -n "$given" ] || rm -rf --one-file-system "$folder"
}
trap finish EXIT

log=$(mktemp)
mirror=$(sed -n 's/^URIs: *//p; s/^deb \(\[[^]]*\] \)*\([^ ]*\) .*/\2/p' /etc/apt/sources.list.d/*.sources /etc/apt/sources.list 2>/dev/null | head -n 1)
debootstrap --variant=minbase --include=ca-certificates,gcc,git,libc6-dev,make,sudo bookworm "$folder" ${mirror:+"$mirror"} >"$log" 2>&1 ||
    { tail -n 5 "$log" >&2; exit 1; }
rm -f "$log"
# How this machine reaches its packages is part of the machine: settings of apt and pip, proxies, certificates.
for file in /etc/resolv.conf /etc/hosts /etc/pip.conf /etc/ssl/certs/ca-certificates.crt "${PIP_CERT:-}" "${SSL_CERT_FILE:-}"; do
    [ ! -f "$file" ] || { mkdir -p "$folder$(dirname "$file")" && cp -L "$file" "$folder$file"; }
done
cp -rL /etc/apt/apt.conf.d/. "$folder/etc/apt/apt.conf.d/" 2>/dev/null || true
rm -rf "$folder/etc/apt/sources.list.d"
cp -rL /etc/apt/sources.list.d "$folder/etc/apt/" 2>/dev/null || true
[ ! -e /etc/apt/sources.list ] || cp -L /etc/apt/sources.list "$folder/etc/apt/sources.list"
mount --bind /dev "$folder/dev"
mount -t devpts devpts "$folder/dev/pts"
mount -t tmpfs tmpfs "$folder/dev/shm"
mount -t proc proc "$folder/proc"
mount -t sysfs sysfs "$folder/sys"
chroot "$folder" useradd -m -s /bin/sh visitor
echo 'visitor ALL=(ALL) NOPASSWD:ALL' >"$folder/etc/sudoers.d/visitor"
git clone -q --no-hardlinks "$repository" "$folder/home/visitor/switchyard"
chroot "$folder" chown -R visitor: /home/visitor/switchyard
used() { du -smx "$folder" | cut -f 1; }

set -- HOME=/home/visitor USER=visitor LANG=C.UTF-8 TERM=dumb PATH=/usr/local/bin:/usr/bin:/bin
for name in $(env | sed -n 's/^\(PIP_[A-Z_]*\|https\{0,1\}_proxy\|SSL_CERT_FILE\|REQUESTS_CA_BUNDLE\)=.*/\1/p'); do
    set -- "$@" "$name=$(printenv "$name")"
done
status=0
for command in 'make demo' 'make test'; do
    echo "== $command"
    before=$(used) start=$(date +%s)
    chroot --userspec=visitor:visitor "$folder" /usr/bin/env -i "$@" \
        /bin/sh -c "cd /home/visitor/switchyard && $command" </dev/null || status=1
    echo "== $command: $(($(date +%s) - start)) s, $(($(used) - before)) MB of disk"
done
exit $status
