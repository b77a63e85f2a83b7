# The cases: each begins with '#: client, how to get it, whether it is part of the short run: name', and is a
# script that fails if the client does not get what it should. It has the server's URL in U, its address in
# HOST, what is served in S, earlier versions of two of the files in OLD, and an empty folder to run in, D.

#: curl, debian curl, quick: whole, coded, over HTTP/1.1
curl -sS --compressed -o a $U/long.txt
cmp a $S/long.txt

#: curl, debian curl, quick: whole, coded, over HTTP/2
curl -sS --http2-prior-knowledge --compressed -o a $U/long.txt
cmp a $S/long.txt

#: curl, debian curl, quick: -C - --compressed
head -c 70000 $S/long.txt >a
curl -sS --compressed -C - -o a $U/long.txt
cmp a $S/long.txt

#: curl, debian curl, quick: -C - of a whole file
cp $S/text.txt a
curl -sS -C - -o a $U/text.txt
cmp a $S/text.txt

#: curl, debian curl, quick: -r --compressed
curl -sS --compressed -r 1000-1999 -o a $U/text.txt
cmp a <(tail -c +1001 $S/text.txt | head -c 1000)

#: curl, debian curl, quick: -r of an empty file
test $(curl -sS -o /dev/null -r 0-9 -w '%{http_code}' $U/empty.txt) = 200

#: curl, debian curl, quick: -z and --etag-compare
curl -sSR --etag-save e -o a $U/text.txt
test $(curl -sS -o b -z a -w '%{http_code}' $U/text.txt) = 304
test $(curl -sS -o b --etag-compare e -w '%{http_code}' $U/text.txt) = 304

#: curl, debian curl, quick: names of fields
curl -sSI $U/text.txt >h
grep -q '^Content-Length: ' h
grep -q '^ETag: ' h

#: curl, debian curl, quick: compressed SVG
curl -sS --compressed -o a $U/logo.svgz
grep -q '<svg' a

#: curl, debian curl, quick: bytes above 0x7f
test "$(curl -sS $U/é.txt)" = accent

#: wget, debian wget, quick: -c
head -c 70000 $S/big.bin >big.bin
wget -q -c $U/big.bin
cmp big.bin $S/big.bin

#: wget, debian wget, quick: -c --compression=auto
head -c 70000 $S/long.txt >long.txt
wget -q -c --compression=auto $U/long.txt
cmp long.txt $S/long.txt

#: wget, debian wget, quick: -N twice
wget -q -N $U/text.txt
wget -N $U/text.txt 2>o
grep -qi 'not modified' o
cmp text.txt $S/text.txt

#: wget, debian wget, quick: -r of a listing
wget -q -r -np -nH $U/list/; cmp "list/it's a.txt" "$S/list/it's a.txt"

#: busybox, debian busybox, quick: wget -c
head -c 70000 $S/big.bin >big.bin
busybox wget -q -c $U/big.bin
cmp big.bin $S/big.bin

#: wget2, debian wget2, quick: -c
head -c 70000 $S/long.txt >long.txt
wget2 -q -c $U/long.txt
cmp long.txt $S/long.txt

#: wget2, debian wget2, quick: --chunk-size of bytes
wget2 -q --chunk-size=1M $U/big.bin
cmp big.bin $S/big.bin

#: wget2, debian wget2, quick: --chunk-size of text
wget2 -q --chunk-size=1M --compression=identity $U/long.txt
cmp long.txt $S/long.txt

#: aria2c, debian aria2, quick: -x4
aria2c -q -x4 -s4 -k1M -o a $U/big.bin
cmp a $S/big.bin

#: aria2c, debian aria2, quick: -x4 of text, with codings
aria2c -q -x4 -s4 -k1M --http-accept-gzip=true -o a $U/long.txt
cmp a $S/long.txt

#: aria2c, debian aria2, quick: -x4, pipelined
aria2c -q -x4 -s4 -k1M --enable-http-pipelining=true -o a $U/long.txt
cmp a $S/long.txt

#: aria2c, debian aria2, quick: an empty file
aria2c -q -x4 -o a $U/empty.txt
test ! -s a

#: axel, debian axel, quick: -n 4
axel -q -n 4 -o a $U/big.bin
cmp a $S/big.bin
axel -q -n 4 -o b $U/long.txt
cmp b $S/long.txt

#: zsync, debian zsync, quick: bytes
cp $OLD/big.bin old.bin
zsync -q -i old.bin -o a $U/big.bin.zsync
cmp a $S/big.bin

#: zsync, debian zsync, quick: text
cp $OLD/long.txt old.txt
zsync -q -i old.txt -o a $U/long.txt.zsync
cmp a $S/long.txt

#: lftp, debian lftp, quick: mirror of a listing
lftp -c "set net:max-retries 1; set net:timeout 9; open $U; mirror list l"; diff -r l $S/list

#: lftp, debian lftp, quick: pget -n 4
lftp -c "open $U; pget -n 4 big.bin -o a"; cmp a $S/big.bin

#: lftp, debian lftp, quick: names
lftp -c "open $U; get 日本/ファイル.txt -o a; get 'a b.txt' -o b"; test "$(cat a b | tr '\n' ,)" = names,space,

#: lftp, debian lftp, quick: get -c
head -c 70000 $S/long.txt >a; lftp -c "open $U; get -c long.txt -o a"; cmp a $S/long.txt

#: rclone, debian rclone: copy of a listing
rclone -q --http-url $U copy :http:list l
diff -r l $S/list

#: git, debian git, quick: clone without a server's help
git clone -q $U/repository.git a
test $(git -C a log --oneline | wc -l) = 2
cmp a/text.txt $S/text.txt

#: apt-get, debian apt, quick: update twice and download
mkdir -p l/partial c/archives/partial; echo "deb [trusted=yes] $U/deb ./" >s.list
o="-o Dir::Etc::sourcelist=$D/s.list -o Dir::Etc::sourceparts=/nonexistent -o Dir::State::lists=$D/l -o Dir::Cache=$D/c -o APT::Sandbox::User=root -o Acquire::http::Proxy=DIRECT -o Acquire::http::Pipeline-Depth=5"
apt-get $o update; apt-get $o update; apt-get $o download tiny; cmp tiny_*.deb $S/deb/tiny_*.deb

#: npm, debian npm, quick: a package with a scope
echo '{"name":"x","version":"1.0.0"}' >package.json; npm install --silent --no-audit --no-fund --replace-registry-host=always --cache ./c --registry $U/ @scope/name; test "$(cat node_modules/@scope/name/index.js)" = 'module.exports = 1'

#: node, debian nodejs, quick: ranges of a database after a whole download
node -e '
const fs = require("fs"), want = fs.readFileSync(process.env.S + "/data.sqlite"), url = process.env.U + "/data.sqlite";
(async () => {
  for (let i = 0; i < 3; i++) await (await fetch(url, { headers: { "accept-encoding": "gzip, br" } })).arrayBuffer();
  const head = await fetch(url, { method: "HEAD" });
  if (+head.headers.get("content-length") !== want.length || head.headers.get("content-encoding")) throw "length";
  if (head.headers.get("accept-ranges") !== "bytes") throw "ranges";
  for (let at = 0; at < want.length; at += 40960) {
    const part = await fetch(url, { headers: { range: `bytes=${at}-${at + 4095}` } });
    const bytes = Buffer.from(await part.arrayBuffer());
    if (part.status !== 206 || !bytes.equals(want.subarray(at, at + 4096))) throw "part";
  }
})().catch(error => { console.log(error); process.exit(1); })'

#: pip3, debian python3-pip, quick: a wheel
pip3 --isolated -q download --no-deps --no-cache-dir --disable-pip-version-check --index-url $U/simple tiny -d a
cmp a/*.whl $S/simple/tiny/*.whl

#: pip3, debian python3-pip: a wheel's metadata by ranges
pip3 --isolated -q download --use-feature=fast-deps --no-cache-dir --disable-pip-version-check --index-url $U/simple tiny -d a
cmp a/*.whl $S/simple/tiny/*.whl

#: gdalinfo, debian gdal-bin: /vsicurl
GDAL_DISABLE_READDIR_ON_OPEN=EMPTY_DIR gdalinfo -checksum /vsicurl/$U/picture.tif | grep Checksum >a
gdalinfo -checksum $S/picture.tif | grep Checksum | cmp - a

#: gdalinfo, debian gdal-bin: /vsicurl, several ranges at once
GDAL_HTTP_MULTIRANGE=SINGLE_GET gdalinfo -checksum /vsicurl/$U/picture.tif | grep Checksum >a
gdalinfo -checksum $S/picture.tif | grep Checksum | cmp - a

#: python-requests, pip requests: a range, with its codings
python3 -c '
import os, requests
url, want = os.environ["U"], open(os.environ["S"] + "/text.txt", "rb").read()
for i in range(3):
    assert requests.get(url + "/text.txt").content == want
part = requests.get(url + "/text.txt", headers={"Range": "bytes=5000-"})
assert part.status_code == 206 and part.content == want[5000:], part.headers
'

#: python-requests, pip requests: HEAD of a database
python3 -c '
import os, requests
head = requests.head(os.environ["U"] + "/data.sqlite")
assert int(head.headers["Content-Length"]) == os.path.getsize(os.environ["S"] + "/data.sqlite"), head.headers
'

#: varnishd, debian varnish: in front, ranges and codings
python3 - <<'P'
import os, socket, subprocess, tempfile, time, urllib.request
s = socket.socket(); s.bind(("127.0.0.1", 0)); port = s.getsockname()[1]; s.close()
work = tempfile.mkdtemp(dir="/tmp"); os.chmod(work, 0o777)
v = subprocess.Popen(["varnishd", "-F", "-n", work, "-a", f"127.0.0.1:{port}", "-b", os.environ["HOST"]], stdout=subprocess.DEVNULL)
try:
    want = open(os.environ["S"] + "/text.txt", "rb").read()
    for i in range(100):
        try:
            socket.create_connection(("127.0.0.1", port)).close(); break
        except OSError:
            time.sleep(0.1)
    def ask(path, **fields):
        request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", headers={k.replace("_", "-"): w for k, w in fields.items()})
        with urllib.request.urlopen(request) as answer:
            return answer.status, answer.read()
    # Until Varnish has decompressed all of it, it sends the whole.
    got = ask("/text.txt", Range="bytes=100-199")
    assert got in [(206, want[100:200]), (200, want)], got[0]
    got = ask("/text.txt")
    assert got == (200, want), got[0]
    got = ask("/picture.tif", Range="bytes=10-19")
    assert got == (206, open(os.environ["S"] + "/picture.tif", "rb").read()[10:20]), got[0]
finally:
    v.terminate(); v.wait()
P

#: nginx, debian nginx-light: slice in front
mkdir n; cat >n/c <<C
worker_processes 1; daemon off; pid $D/n/pid; error_log $D/n/e;
events {}
http { access_log off; proxy_cache_path $D/n/cache keys_zone=z:1m;
 server { listen unix:$D/n/s; location / { slice 1m; proxy_cache z; proxy_cache_key \$uri\$slice_range; proxy_cache_valid 200 206 1h;
  proxy_set_header Range \$slice_range; proxy_set_header Host $HOST; proxy_http_version 1.1; proxy_pass $U; } } }
C
nginx -t -c $D/n/c -e $D/n/e 2>n/t || { cat n/t; exit 1; }
nginx -c $D/n/c -e $D/n/e & p=$!; trap 'kill $p' EXIT
for i in $(seq 100); do test -S n/s && break; sleep 0.1; done
for f in long.txt big.bin empty.txt; do curl -sSf --unix-socket n/s -o a http://x/$f; cmp a $S/$f; done
curl -sS --unix-socket n/s -r 2000000-2000999 -o a http://x/big.bin; cmp a <(tail -c +2000001 $S/big.bin | head -c 1000)

#: wget, debian wget, quick: names and apostrophes
wget -q -O a "$U/it's.txt"; wget -q -O b "$U/a b.txt"; test "$(cat a b | tr '\n' ,)" = apostrophe,space,

#: curl, debian curl, quick: %2F is a slash
test "$(curl -sS --path-as-is $U/sub%2Ffile.txt)" = 'in a folder'

#: curl, debian curl, quick: 400 fields too many, 200 not
for i in $(seq 200); do echo "X-$i: a"; done >h; test $(curl -sS -o /dev/null -w '%{http_code}' -H @h $U/text.txt) = 200; for i in $(seq 400); do echo "X-$i: a"; done >h; test $(curl -sS -o /dev/null -w '%{http_code}' -H @h $U/text.txt) = 431

#: cargo, debian cargo, quick: a sparse registry
export RUSTUP_HOME=${RUSTUP_HOME:-$(getent passwd $(id -u) | cut -d: -f6)/.rustup}
mkdir -p p/src .cargo; echo 'fn main() { print!("{}", tiny::ANSWER) }' >p/src/main.rs
printf '[package]\nname = "p"\nversion = "1.0.0"\nedition = "2021"\n[dependencies]\ntiny = { version = "1", registry = "own" }\n[workspace]\n' >p/Cargo.toml
printf '[registries.own]\nindex = "sparse+http://registry.example/cargo/"\n[http]\nproxy = "%s"\n' $HOST >.cargo/config.toml
# A registry names the place of its files: by its own host, which is reached as through a proxy.
for i in 1 2; do no_proxy= CARGO_HOME=$D/home cargo fetch -q --manifest-path p/Cargo.toml; rm p/Cargo.lock; done
cmp home/registry/cache/*/tiny-1.0.0.crate $S/cargo/crates/tiny/1.0.0/download

#: go, debian golang-go: a mirror of modules
printf 'module a\n\ngo 1.16\n' >go.mod
export GOPROXY=$U/go GONOSUMDB=* GONOSUMCHECK=1 GOFLAGS=-mod=mod GOTOOLCHAIN=local GOPATH=$D/p GOCACHE=$D/c GOMODCACHE=$D/p/m
go get example.org/Tiny@latest
cmp p/m/cache/download/example.org/\!tiny/@v/v1.0.0.zip $S/go/example.org/\!tiny/@v/v1.0.0.zip
chmod -R u+w p

#: skopeo, debian skopeo: an image from files
skopeo --insecure-policy copy -q --src-tls-verify=false docker://$HOST/app:latest dir:image
cmp image/manifest.json $S/v2/app/manifests/latest
test "$(skopeo list-tags --tls-verify=false docker://$HOST/app | tr -d ' \n')" = '{"Repository":"'$HOST'/app","Tags":["latest"]}'

#: ostree, debian ostree: pull with a delta and without
for delta in --require-static-deltas --disable-static-deltas; do
  ostree init --repo=r --mode=bare-user
  ostree remote add --repo=r --no-gpg-verify own $U/ostree
  ostree pull --repo=r $delta own main
  test "$(ostree rev-parse --repo=r own:main)" = "$(cat $S/ostree/refs/heads/main)"
  ostree fsck --repo=r -q; rm -r r
done
ostree init --repo=r --mode=archive; ostree pull --repo=r --mirror --depth=-1 $U/ostree main 2>/dev/null || ostree remote add --repo=r --no-gpg-verify o $U/ostree
ostree pull --repo=r --mirror --depth=-1 o main; test "$(ostree log --repo=r main | grep -c ^commit)" = 2

#: ffmpeg, debian ffmpeg: HLS, whole and from its middle
for at in 0 7; do
  ffmpeg -v error -ss $at -i $U/film/list.m3u8 -c copy -f framemd5 a 2>e; test ! -s e || { cat e; exit 1; }
  ffmpeg -v error -ss $at -i $S/film/list.m3u8 -c copy -f framemd5 b; cmp a b; rm a b
done

#: ffmpeg, debian ffmpeg: seeking in an MP4 whose index is its end
for at in 0 7; do
  ffmpeg -v error -ss $at -i $U/film/late.mp4 -c copy -f framemd5 a 2>e; test ! -s e || { cat e; exit 1; }
  ffmpeg -v error -ss $at -i $S/film/late.mp4 -c copy -f framemd5 b; cmp a b; rm a b
done
ffmpeg -v error -seekable 0 -i $U/film/film.ogv -c copy -f framemd5 a; ffmpeg -v error -i $S/film/film.ogv -c copy -f framemd5 b; cmp a b

#: gst-launch-1.0, debian gstreamer1.0-tools gstreamer1.0-plugins-base gstreamer1.0-plugins-good: an MP4 whose index is its end
gst-launch-1.0 -q souphttpsrc location=$U/film/late.mp4 ! qtdemux name=d d.video_0 ! queue ! filesink location=a
gst-launch-1.0 -q filesrc location=$S/film/late.mp4 ! qtdemux name=d d.video_0 ! queue ! filesink location=b
test -s a; cmp a b

#: gst-launch-1.0, debian gstreamer1.0-tools gstreamer1.0-plugins-base gstreamer1.0-plugins-good: asking for titles as of a radio
gst-launch-1.0 -q souphttpsrc iradio-mode=true location=$U/film/film.ogv ! filesink location=a; cmp a $S/film/film.ogv

#: chromium, debian chromium, npm sql.js-httpvfs: a database by ranges
chromium --headless --no-sandbox --disable-gpu --user-data-dir=$D/chrome --remote-debugging-port=0 --enable-logging=stderr $U/chromium/sql.html 2>log & p=$!
trap 'kill $p; wait $p' EXIT
for i in $(seq 500); do grep "few bytes\|Error" log >out && break; sleep 0.1; done
grep -q "3000 rows, row 1500 true, few bytes true" out || { cat out; exit 1; }

#: chromium, debian chromium, npm pdfjs-dist@4: a PDF by ranges
chromium --headless --no-sandbox --disable-gpu --user-data-dir=$D/chrome --remote-debugging-port=0 --enable-logging=stderr $U/chromium/pdf.html 2>log & p=$!
trap 'kill $p; wait $p' EXIT
for i in $(seq 500); do grep "few bytes\|Error" log >out && break; sleep 0.1; done
grep -q "200 pages, page 150 true, .*few bytes true" out || { cat out; exit 1; }
