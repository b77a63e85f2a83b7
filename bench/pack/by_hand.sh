#!/bin/sh
# usage: by_hand.sh DIR: compresses each file of DIR by the usual programs, as a yardstick.
set -eu
dir=$1
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
for program in "gzip -9 -c" "brotli -q 11 -w 24 -c" "zstd -19 -q -c"; do
    echo "$program" > "$out/program"
    export PROGRAM="$program" OUT="$out"
    rm -f "$out"/bytes.*
    /usr/bin/time -f "$program	%e	%U	%S	%M" -o "$out/time" \
        sh -c 'find "$0" -type f -print0 | xargs -0 -P "$(nproc)" -n 64 sh -c \
            "for f; do \$PROGRAM \"\$f\" | wc -c; done >> \"\$OUT/bytes.\$\$\"" sh' "$dir"
    bytes=$(cat "$out"/bytes.* | awk '{ sum += $1 } END { print sum }')
    awk -F'\t' -v bytes="$bytes" \
        '{ printf "%-24s wall %8.1f s  cpu %8.1f s  peak %6d MiB  %14d bytes\n", $1, $2, $3 + $4, $5 / 1024, bytes }' \
        "$out/time"
done
