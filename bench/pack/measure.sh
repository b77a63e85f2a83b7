#!/bin/sh
# usage: measure.sh GANNET WORK: see README.md. Needs 12 GB in WORK for a while.
set -eu
gannet=$1
work=$2
here=$(dirname "$0")
export XDG_CACHE_HOME="$work/cache"
step() { # NAME DIR FLAGS...
    name=$1
    dir=$2
    shift 2
    /usr/bin/time -f '%e	%U	%S	%M' -o "$work/time" \
        "$gannet" pack "$dir" -o "$work/out.gannet" -q "$@"
    bytes=$(stat -c %s "$work/out.gannet")
    awk -F'\t' -v name="$name" -v bytes="$bytes" \
        '{ printf "%-36s wall %8.1f s  cpu %8.1f s  peak %6d MiB  %14d bytes\n", name, $1, $2 + $3, $4 / 1024, bytes }' \
        "$work/time"
}
site() { # NAME DIR CHANGED FLAGS...
    name=$1
    dir=$2
    changed=$3
    shift 3
    rm -rf "$work/out.gannet" "$work/cache"
    step "$name" "$dir" "$@"
    step "$name, nothing changed" "$dir" "$@"
    echo "<p>changed</p>" >> "$dir/$changed"
    step "$name, one file changed" "$dir" "$@"
    "$gannet" verify "$work/out.gannet" > /dev/null
}
[ -d "$work/python" ] && site "python docs" "$work/python" index.html
[ -d "$work/icons" ] && site "icons" "$work/icons" README.md
if [ ! -d "$work/pages" ]; then
    python3 "$here/generate.py" "$work/pages" "${PAGES:-1000000}"
fi
site "${PAGES:-1000000} pages, --fast" "$work/pages" 000/0.html --fast
rm -rf "$work/pages"
mkdir -p "$work/large"
for number in 1 2 3 4 5; do
    [ -f "$work/large/$number.mp4" ] || head -c 900M /dev/urandom > "$work/large/$number.mp4"
done
echo "<p>large</p>" > "$work/large/index.html"
site "4.5 GB of films" "$work/large" index.html
rm -rf "$work/large" "$work/out.gannet" "$work/cache" "$work/time"
