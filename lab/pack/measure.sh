#!/bin/sh
# usage: measure.sh [-g GANNET] [-w WORK] [-p PAGES] [-l MEGABYTES] [PART...]: see README.md.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
gannet=
work=${TMPDIR:-/tmp}/gannet-pack
pages=1000000
large=900
parts="python icons pages fast full large"
usage() {
    echo "usage: measure.sh [-g GANNET] [-w WORK] [-p PAGES] [-l MEGABYTES] [PART...]"
    echo "parts, all of them by default: $parts"
} >&2
while getopts g:w:p:l: option; do
    case $option in
        g) gannet=$OPTARG ;;
        w) work=$OPTARG ;;
        p) pages=$OPTARG ;;
        l) large=$OPTARG ;;
        *) usage; exit 2 ;;
    esac
done
shift $((OPTIND - 1))
for part in "$@"; do
    case " $parts " in
        *" $part "*) ;;
        *) echo "measure.sh: there is no part '$part'" >&2; usage; exit 2 ;;
    esac
done
[ $# -gt 0 ] || set -- $parts
for tool in /usr/bin/time python3 gzip brotli zstd; do
    command -v "$tool" > /dev/null || { echo "measure.sh: needs $tool" >&2; exit 1; }
done
if [ -z "$gannet" ]; then
    (cd "$here/../.." && cargo build -q --release -p gannet) || exit 1
    target=$(cd "$here/../.." && cargo metadata --no-deps --format-version 1 |
        python3 -c 'import json, sys; print(json.load(sys.stdin)["target_directory"])')
    gannet=$target/release/gannet
fi
mkdir -p "$work"
export XDG_CACHE_HOME="$work/cache"
archive=$work/out.gannet

row() { # NAME BYTES: with what `time` has left
    awk -F'\t' -v name="$1" -v bytes="$2" \
        '{ printf "| %s | %.1f | %.2f | %d MiB | %s |\n", name, $1, $2 + $3, $4 / 1024, bytes }' \
        "$work/time"
}
timed() { # NAME COMMAND...: its row, without bytes
    name=$1
    shift
    /usr/bin/time -f '%e	%U	%S	%M' -o "$work/time" "$@" > /dev/null
    row "$name" ""
}
step() { # NAME DIR FLAGS...: packs
    name=$1
    dir=$2
    shift 2
    /usr/bin/time -f '%e	%U	%S	%M' -o "$work/time" "$gannet" pack "$dir" -o "$archive" -q "$@"
    row "$name" "$(stat -c %s "$archive")"
}
site() { # TITLE DIR CHANGED FLAGS...
    title=$1
    dir=$2
    changed=$2/$3
    shift 3
    rm -rf "$archive" "$work/cache"
    files=$(find "$dir" -type f | wc -l)
    printf '\n%s: %s files\n\n' "$title" "$files"
    echo "| step | wall s | CPU s | peak memory | bytes |"
    echo "|---|---|---|---|---|"
    step "full build" "$dir" "$@"
    step "again, nothing changed" "$dir" "$@"
    cp -p "$changed" "$work/kept"
    echo "<p>changed</p>" >> "$changed"
    step "again, one file changed" "$dir" "$@"
    timed "\`gannet verify\`" "$gannet" verify "$archive"
    timed "\`gannet inspect\`" "$gannet" inspect "$archive"
    timed "floor: \`cp\` of the archive" cp "$archive" "$work/copy"
    timed "floor: \`find -printf\` of the tree" find "$dir" -type f -printf '%s %T@\n'
    "$gannet" inspect --json "$archive" | python3 -c '
import json, sys
for coding, stored in json.load(sys.stdin)["codings"].items():
    print("| stored as %s | | | | %d |" % (coding, stored["bytes"]))'
    cp -p "$work/kept" "$changed"
    rm -f "$work/kept" "$work/copy"
}
missing() { # WHAT WHY
    printf '\n%s: left out, %s\n' "$1" "$2"
}

python_docs() {
    if [ ! -d "$work/python" ]; then
        package=$(apt-cache depends python3-doc 2> /dev/null |
            sed -n 's/.*Depends: \(python3\.[0-9]*-doc\)$/\1/p' | head -n 1)
        [ -n "$package" ] || { missing "Python documentation" "no package python3-doc"; return; }
        mkdir -p "$work/unpacked"
        (cd "$work/unpacked" && apt-get download -q "$package" > /dev/null &&
            dpkg-deb -x "$package"_*.deb .)
        html=$(find "$work/unpacked/usr/share/doc" -path "*/python3.*/html" -type d | head -n 1)
        cp -rL "$html" "$work/python" 2> /dev/null || true
        rm -rf "$work/unpacked"
    fi
    site "Documentation of Python, default levels" "$work/python" index.html
    "$here/by_hand.sh" "$work/python"
}
icons() {
    if [ ! -d "$work/icons" ]; then
        command -v npm > /dev/null || { missing "Icons" "no npm"; return; }
        mkdir -p "$work/unpacked"
        (cd "$work/unpacked" && npm pack --silent @mdi/svg > /dev/null && tar xzf ./*.tgz)
        mv "$work/unpacked/package" "$work/icons"
        rm -rf "$work/unpacked"
    fi
    site "Icons of @mdi/svg, default levels" "$work/icons" README.md
    "$here/by_hand.sh" "$work/icons"
}
generated() { # COUNT: the folder of so many pages, made anew
    rm -rf "$work/pages"
    python3 "$here/generate.py" "$work/pages" "$1"
}
few_pages() {
    count=$((pages < 10000 ? pages : 10000))
    generated "$count"
    site "Pages, default levels" "$work/pages" 000/0.html
    "$here/by_hand.sh" "$work/pages"
}
all_pages() { # TITLE FLAGS...
    [ "$(find "$work/pages" -type f 2> /dev/null | wc -l)" -eq "$pages" ] || generated "$pages"
    title=$1
    shift
    site "$title" "$work/pages" 000/0.html "$@"
}
large_files() {
    mkdir -p "$work/large"
    for number in 1 2 3 4 5; do
        # Incompressible, also for a disk or file system.
        head -c "${large}M" /dev/urandom > "$work/large/$number.mp4"
    done
    echo "<p>large</p>" > "$work/large/index.html"
    site "Five files of $large MiB" "$work/large" index.html
    rm -rf "$work/large"
}
for part in "$@"; do
    case $part in
        python) python_docs ;;
        icons) icons ;;
        pages) few_pages ;;
        fast) all_pages "Pages, --fast" --fast ;;
        full) all_pages "Pages, default levels" ;;
        large) large_files ;;
    esac
done
rm -rf "$work/pages" "$archive" "$work/cache" "$work/time"
