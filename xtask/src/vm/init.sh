#!/bin/busybox sh
# The first process of an emulated machine.
/bin/busybox mkdir -p /usr/bin /sbin
for name in mount sh cat insmod poweroff mkdir sleep ls dmesg; do /bin/busybox ln -sf /bin/busybox /usr/bin/$name; done
export PATH=/bin:/usr/bin HOME=/tmp
mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t devtmpfs dev /dev; mount -t tmpfs tmp /run; mount -t tmpfs tmp /tmp
mkdir -p /sys/fs/bpf; mount -t bpf bpf /sys/fs/bpf
mkdir -p /dev/net; [ -e /dev/net/tun ] || /bin/busybox mknod /dev/net/tun c 10 200
while read -r module; do insmod /modules/$module || echo "module $module: not loaded"; done < /modules/order
# iperf3 asks for large socket buffers.
for name in rmem_max wmem_max; do echo 4194304 > /proc/sys/net/core/$name; done
for word in $(cat /proc/cmdline); do case $word in scenarios=*) scenarios=${word#*=};; esac; done
/bin/xtask vm-guest --scenario "$scenarios"
poweroff -f
