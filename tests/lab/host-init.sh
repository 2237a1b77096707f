#!/bin/sh
# PID 1 of fresh pid, mount, uts, ipc, time and cgroup namespaces, already inside the host's own network namespace:
# lays out one host and becomes the real systemd.   host-init.sh STATE NAME LOWER PACKAGES PROJECT
#
# STATE/{upper,work,root} are on a tmpfs that only the keeper's mount namespace has, so the host's disk (upper) survives
# a reboot and nothing survives the keeper. systemd must never run before pivot_root: in a namespace that still shares
# /tmp, /run or / it deletes real files at boot and turns the shared kernel's knobs.
set -eu
STATE=$1 NAME=$2 LOWER=$3 PACKAGES=$4 PROJECT=$5 ROOT=$1/root

mount --make-rprivate /
mount -t overlay "lab-$NAME" -o "lowerdir=$LOWER,upperdir=$STATE/upper,workdir=$STATE/work" "$ROOT"
mount -t proc -o nosuid,nodev,noexec proc "$ROOT/proc"
mount -t sysfs -o nosuid,nodev,noexec,ro sysfs "$ROOT/sys"            # read-only: udev and others skip themselves
mount -t cgroup2 -o nosuid,nodev,noexec cgroup2 "$ROOT/sys/fs/cgroup" # its root is this host's own cgroup

# a boot id of this boot's own, as a real machine has
cat /proc/sys/kernel/random/uuid >"$STATE/boot_id"
mount --bind "$STATE/boot_id" "$ROOT/proc/sys/kernel/random/boot_id"

# the kernel is shared: no host may turn its knobs (net.* stays writable, it is per namespace); rbind keeps boot_id
for knobs in sys/kernel sys/fs sys/vm sysrq-trigger; do
    [ -e "$ROOT/proc/$knobs" ] || continue
    mount --rbind "$ROOT/proc/$knobs" "$ROOT/proc/$knobs"
    mount -o remount,bind,ro "$ROOT/proc/$knobs"
done

mount -t tmpfs -o mode=0755,nosuid,size=4m dev "$ROOT/dev"
for device in null:3 zero:5 full:7 random:8 urandom:9; do
    mknod -m 666 "$ROOT/dev/${device%:*}" c 1 "${device#*:}"
done
mknod -m 666 "$ROOT/dev/tty" c 5 0
mkdir "$ROOT/dev/pts" "$ROOT/dev/shm"
mount -t devpts -o newinstance,ptmxmode=0666,mode=620,gid=5 devpts "$ROOT/dev/pts"
mount -t tmpfs -o mode=1777,nosuid,nodev tmpfs "$ROOT/dev/shm"
ln -s pts/ptmx "$ROOT/dev/ptmx"
ln -s /proc/self/fd "$ROOT/dev/fd"
for stream in 0:stdin 1:stdout 2:stderr; do
    ln -s "/proc/self/fd/${stream%:*}" "$ROOT/dev/${stream#*:}"
done

# the tests' own packages and project, to be read: they may lie where this host has a folder of its own (/tmp, homes)
for share in "packages:$PACKAGES" "project:$PROJECT"; do
    mkdir -p "$ROOT/opt/lab-${share%%:*}"
    mount --bind "${share#*:}" "$ROOT/opt/lab-${share%%:*}"
    mount -o remount,bind,ro,nosuid "$ROOT/opt/lab-${share%%:*}"
done

mount -t tmpfs -o mode=0755,nosuid,nodev,size=64m tmpfs "$ROOT/run"
mount -t tmpfs -o mode=1777,nosuid,nodev,size=64m tmpfs "$ROOT/tmp"
hostname "$NAME"
cd "$ROOT"
pivot_root . mnt
umount -l /mnt
exec env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin container=lab LANG=C.UTF-8 \
    /lib/systemd/systemd --system --log-target=journal --show-status=false
