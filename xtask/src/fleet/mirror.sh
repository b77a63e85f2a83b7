# A mirror of Debian packages in a store: clients of apt update and download in a loop while it is published.
# mirror.sh GANNET FOLDER RELEASES CLIENTS
set -eu
gannet=$1 folder=$2 releases=$3 clients=$4
cd "$folder"

# The repository of a step: two packages that stay, and one whose version is the step. A package is built
# once: under one name it never has other bytes.
package() {
    deb=gannet-$1_$2_all.deb
    [ ! -e "built/$deb" ] || { cp -p "built/$deb" mirror/pool/main/; return; }
    mkdir -p "work/$1/DEBIAN"
    printf 'Package: gannet-%s\nVersion: %s\nArchitecture: all\nMaintainer: x <x@example.org>\nDescription: %s\n' \
        "$1" "$2" "$1" > "work/$1/DEBIAN/control"
    dpkg-deb -Zxz -b "work/$1" "built/$deb" > /dev/null
    cp -p "built/$deb" mirror/pool/main/
}
repository() {
    rm -rf mirror
    lists=mirror/dists/stable/main/binary-all
    mkdir -p built mirror/pool/main "$lists/by-hash/SHA256"
    package one 1
    package two 1
    package three "$1"
    (cd mirror && dpkg-scanpackages -m pool > dists/stable/main/binary-all/Packages 2> /dev/null)
    xz -k "$lists/Packages"
    option=APT::FTPArchive::Release
    # By hash apt asks for the strongest that the release names, so that it names one.
    apt-ftparchive -o "$option::MD5=no" -o "$option::SHA1=no" -o "$option::SHA512=no" \
        -o "$option::Acquire-By-Hash=yes" -o "$option::Suite=stable" -o "$option::Codename=stable" \
        -o "$option::Architectures=all" -o "$option::Components=main" release mirror/dists/stable > Release
    mv Release mirror/dists/stable/Release
    for list in Packages Packages.xz; do
        cp "$lists/$list" "$lists/by-hash/SHA256/$(sha256sum < "$lists/$list" | cut -c -64)"
    done
    printf '/pool/*\n  Cache-Control: max-age=3600, immutable\n' > mirror/_headers
}
publish() {
    repository "$1"
    "$gannet" publish mirror store --fast -q --keep '1h 3..20' --wait "http://$2"
}

# One client: an update, then a package by the lists that it got.
client() {
    mkdir -p "$1/lists/partial" "$1/cache/archives/partial" "$1/etc/apt.conf.d" \
        "$1/etc/preferences.d" "$1/dpkg"
    : > "$1/dpkg/status"
    echo "deb [trusted=yes] http://$2 stable main" > "$1/etc/sources.list"
    cat > "$1/apt.conf" <<CONF
Dir::State "$PWD/$1"; Dir::State::status "$PWD/$1/dpkg/status"; Dir::Cache "$PWD/$1/cache";
Dir::Etc "$PWD/$1/etc"; APT::Sandbox::User "root"; Acquire::Languages "none"; Acquire::Retries "0";
CONF
    rounds=0
    while [ ! -e end ]; do
        for command in update 'download gannet-one gannet-three'; do
            # shellcheck disable=SC2086
            (cd "$1" && rm -f ./*.deb && APT_CONFIG=$PWD/apt.conf apt-get $command) > "$1/out" 2>&1 || echo failed >> "$1/out"
            ! grep -qE '^(E|W|Err|failed)' "$1/out" || cat "$1/out" >> "$1/bad"
        done
        rounds=$((rounds + 1))
        echo "$rounds" > "$1/rounds"
    done
}

repository 1
"$gannet" publish mirror store --fast -q
"$gannet" serve store --listen 127.0.0.1:0 --metrics 127.0.0.1:0 > serving 2> log &
server=$!
trap 'kill $server' EXIT
until grep -q 'metrics.*http' serving; do
    kill -0 $server
    sleep 0.1
done
site=$(sed -n 's|^at .*http://\([^/]*\)/.*|\1|p' serving | head -n 1)
metrics=$(sed -n 's|^metrics .*http://\([^/]*\)/.*|\1|p' serving | head -n 1)
running=
for number in $(seq "$clients"); do
    client "client-$number" "$site" &
    running="$running $!"
done
for release in $(seq 2 "$releases"); do publish "$release" "$metrics"; done
touch end
# shellcheck disable=SC2086
wait $running
if cat client-*/bad > bad 2> /dev/null; then
    grep -E '^(E|W|Err|failed)' bad | head -n 20 >&2
    exit 1
fi
echo "apt: $(cat client-*/rounds | awk '{ sum += $1 } END { print sum }') rounds of $clients clients during $releases releases, none failed"
