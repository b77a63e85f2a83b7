#!/bin/sh
# The init process of a machine with a 64-bit ARM processor: gannet serves on both engines, and downloads from
# itself what it serves, with kernel TLS.
export PATH=/bin HOME=/root LANG=C.UTF-8
/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mkdir -p /dev/shm
ip link set lo up
for module in $(cat /etc/modules); do
    insmod "/lib/modules/$module.ko" || echo "vm: module $module was not loaded"
done
ulimit -n 8192
echo "root:x:0:0::/root:/bin/sh" >/etc/passwd
echo "root:x:0:" >/etc/group
mkdir /site
seq 20000 >/site/index.html
dd if=/dev/urandom of=/site/long.bin bs=1048576 count=4 2>/dev/null
echo "vm: started $(uname -r)"
gannet doctor /site

try() {
    if "$@"; then passed=$((passed + 1)); else failed=$((failed + 1)) && echo "failed: $*"; fi
}
is_sent() {
    file=$1 && shift
    rm -f /tmp/got
    gannet get --insecure --quiet --output /tmp/got "$@" "https://127.0.0.1:8443/$file" &&
        cmp /tmp/got "/site/${file:-index.html}"
}
sealed() {
    awk '$1 == "TlsTxSw" { print $2 }' /proc/net/tls_stat
}
is_sealed_by_kernel() {
    [ "$(sealed)" -gt "$1" ]
}
is_listening() {
    grep -q ':20FB 00000000:0000 0A' /proc/net/tcp
}
# Serves something on an engine.
suite() {
    echo "vm: suite $1-$2"
    passed=0 failed=0
    gannet serve "/$2" --port 8443 --tls --engine "$1" --ktls on --log off &
    server=$!
    until is_listening || ! kill -0 $server; do sleep 0.2; done
    try is_sent ''
    try is_sent '' --http2
    try is_sent '' --http3
    before=$(sealed)
    try is_sent long.bin
    try is_sealed_by_kernel "$before"
    kill $server
    try wait $server
    echo "test result: $passed passed; $failed failed"
    echo "vm: ended $1-$2 with $failed"
}
gannet pack /site --quiet --output /site.gannet
for engine in io_uring epoll; do
    suite $engine site
    suite $engine site.gannet
done
sed 's/^/vm: counter /' /proc/net/tls_stat
echo "vm: finished"
poweroff -f
