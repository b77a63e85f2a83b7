#!/bin/sh
# The init process of a measuring VM: each server sends a large file to a client in the same VM, and
# the scheduler's record of the CPU time of the server's threads is printed.
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
dd if=/dev/zero of=/bench/site/big.bin bs=1048576 count=MEBIBYTES 2>/dev/null
echo "vm: started $(uname -r)"

# CPU time in nanoseconds of all threads of the processes.
spent() {
    for pid in "$@"; do cat /proc/"$pid"/task/*/schedstat; done | awk '{ sum += $1 } END { printf "%.0f", sum }'
}
sealed() {
    awk '$1 == "TlsTxSw" { print $2 }' /proc/net/tls_stat
}
get() {
    GANNET get --insecure --quiet --connections 1 "https://127.0.0.1:$1/big.bin" >/dev/null ||
        echo "vm: the download from port $1 failed"
}
serve() {
    GANNET serve /bench/site --port "$1" --tls-cert /bench/chain.pem --tls-key /bench/key.pem \
        --workers 1 --engine "$2" --ktls "$3" --log off --quiet >/bench/gannet-"$1".log 2>&1 &
    echo "$!"
}
for kind in kernel user; do
    mkdir -p /bench/$kind
    NGINX -p /bench/$kind -c /bench/nginx-$kind.conf >/bench/nginx-$kind.log 2>&1 &
done
serve 8001 io_uring on >/bench/gannet-uring.pid
serve 8002 epoll on >/bench/gannet-epoll.pid
serve 8003 io_uring off >/bench/gannet-user.pid
# Wait until all five listen: ports 8001 to 8005 are 1F41 to 1F45.
tries=0
until [ "$(grep -c ':1F4[1-5] 00000000:0000 0A' /proc/net/tcp)" -ge 5 ] || [ $tries -gt 300 ]; do
    tries=$((tries + 1))
    sleep 0.1
done
measure() {
    name=$1 port=$2 pids=$3
    before=$(spent $pids) sealed=$(sealed)
    get "$port"
    after=$(spent $pids) now=$(sealed)
    echo "vm: bench $name $((after - before)) $((now - sealed))"
}
nginx_pids() {
    pid=$(cat /bench/nginx-$1.pid)
    echo "$pid $(cat /proc/"$pid"/task/"$pid"/children)"
}
# The first round is a warm-up and is not counted.
for round in 0 ROUNDS; do
    [ "$round" = 0 ] && echo "vm: warm"
    [ "$round" = 1 ] && echo "vm: counted"
    measure nginx-kernel 8004 "$(nginx_pids kernel)"
    measure gannet-uring-kernel 8001 "$(cat /bench/gannet-uring.pid)"
    measure gannet-epoll-kernel 8002 "$(cat /bench/gannet-epoll.pid)"
    measure nginx-user 8005 "$(nginx_pids user)"
    measure gannet-uring-user 8003 "$(cat /bench/gannet-user.pid)"
done
cat /bench/*.log
echo "vm: finished"
poweroff -f
