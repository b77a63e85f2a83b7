#!/bin/sh
# usage: by_hand.sh DIR: compresses each file of DIR with the usual programs on all cores, as a
# yardstick; prints table rows.
set -eu
dir=$1
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
for program in "gzip -9 -c" "brotli -q 11 -w 24 -c" "zstd -19 -q -c"; do
    shown=${program% -c}
    shown=${shown% -q}
    export PROGRAM="$program" OUT="$out"
    rm -f "$out"/bytes.*
    /usr/bin/time -f '%e	%U	%S	%M' -o "$out/time" \
        sh -c 'find "$0" -type f -print0 | xargs -0 -P "$(nproc)" -n 64 sh -c \
            "for f; do \$PROGRAM \"\$f\" | wc -c; done >> \"\$OUT/bytes.\$\$\"" sh' "$dir"
    bytes=$(cat "$out"/bytes.* | awk '{ sum += $1 } END { printf "%d", sum }')
    awk -F'\t' -v name="by hand: \`$shown\`" -v bytes="$bytes" \
        '{ printf "| %s | %.1f | %.2f | %d MiB | %s |\n", name, $1, $2 + $3, $4 / 1024, bytes }' \
        "$out/time"
done
