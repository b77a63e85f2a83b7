#!/bin/sh
# The init process of the VM: loads modules, runs the test binaries, prints how each ended.
export PATH=/bin:/sbin:/usr/sbin HOME=/root LANG=C.UTF-8 RUST_BACKTRACE=0
/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mkdir -p /dev/shm /dev/pts
ip link set lo mtu 4096 up
for module in $(cat /etc/modules); do
    insmod "/lib/modules/$module.ko" || echo "vm: module $module was not loaded"
done
ulimit -n 8192
# Tests see to it that the server is not dumpable all the same.
echo 1 >/proc/sys/fs/suid_dumpable
echo "vm: started $(uname -r)"
while read -r name path; do
    echo "vm: suite $name"
    timeout -s KILL SUITE_SECONDS "$path" --test-threads=2 --nocapture </dev/null 2>&1
    echo "vm: ended $name with $?"
done </etc/suites
sed 's/^/vm: counter /' /proc/net/tls_stat
echo "vm: finished"
poweroff -f
