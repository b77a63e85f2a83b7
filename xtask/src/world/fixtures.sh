# Makes the site that clients are tried on, and earlier versions of two files, in the current folder.
set -euo pipefail
rm -rf site old work
mkdir site old work
python3 - <<'PYTHON'
import gzip, io, os, random, sqlite3, struct, tarfile, zipfile, base64, hashlib, json
random.seed(1)
words = [''.join(random.choice('abcdefghijklmnop') for _ in range(random.randint(2, 9))) for _ in range(800)]
def text(n):
    out, length = [], 0
    while length < n:
        line = ' '.join(random.choice(words) for _ in range(12)) + '\n'
        out.append(line)
        length += len(line)
    return ''.join(out)[:n].encode()
def write(path, content):
    path = 'site/' + path
    os.makedirs(os.path.dirname(path), exist_ok=True)
    open(path, 'wb').write(content if isinstance(content, bytes) else content.encode())
def changed(content):
    content = bytearray(content)
    for _ in range(150):
        at = random.randrange(len(content) - 100)
        content[at:at + 10] = b'0123456789'
    return bytes(content)
write('index.html', '<!doctype html><title>front</title><a href="list/">list</a><p>' + text(3000).decode())
write('text.txt', text(60_000))
long, big = text(5_000_000), random.randbytes(6_000_000)
write('long.txt', long)
write('big.bin', big)
open('old/long.txt', 'wb').write(changed(long))
open('old/big.bin', 'wb').write(changed(big))
write('empty.txt', b'')
write('sub/file.txt', 'in a folder\n')
write('é.txt', 'accent\n')
write('a b.txt', 'space\n')
write("it's.txt", 'apostrophe\n')
write('日本/ファイル.txt', 'names\n')
for name in ['a.txt', "it's a.txt", 'é.txt']:
    write('list/' + name, 'listed ' + name)
write('logo.svgz', gzip.compress(b'<svg xmlns="http://www.w3.org/2000/svg"/>' * 50, mtime=0))
c = sqlite3.connect('site/data.sqlite')
c.execute('create table t(a integer primary key, b text)')
c.executemany('insert into t values (?, ?)', [(i, text(100).decode()) for i in range(3000)])
c.commit()
[row] = c.execute('select b from t where a = 1500').fetchone()
c.close()
# npm: a package with a scope.
def tar(path, members):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode='w:gz') as out:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            out.addfile(info, io.BytesIO(content))
    write(path, buffer.getvalue())
    return buffer.getvalue()
package = {'name': '@scope/name', 'version': '1.0.0', 'main': 'index.js'}
packed = tar('packages/name-1.0.0.tgz', {'package/package.json': json.dumps(package).encode(), 'package/index.js': b'module.exports = 1'})
integrity = 'sha512-' + base64.b64encode(hashlib.sha512(packed).digest()).decode()
dist = {'tarball': 'http://localhost:1/packages/name-1.0.0.tgz', 'integrity': integrity}
write('@scope/name', json.dumps({'name': '@scope/name', 'dist-tags': {'latest': '1.0.0'}, 'versions': {'1.0.0': {**package, 'dist': dist}}}))
# pip: a wheel.
buffer = io.BytesIO()
with zipfile.ZipFile(buffer, 'w') as out:
    out.writestr('tiny/__init__.py', 'answer = 42\n' + '#' * 20_000)
    out.writestr('tiny-1.0.dist-info/METADATA', 'Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n')
    out.writestr('tiny-1.0.dist-info/WHEEL', 'Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n')
    out.writestr('tiny-1.0.dist-info/RECORD', '')
write('simple/tiny/tiny-1.0-py3-none-any.whl', buffer.getvalue())
write('simple/tiny/index.html', '<a href="tiny-1.0-py3-none-any.whl">tiny-1.0-py3-none-any.whl</a>')
write('simple/index.html', '<a href="tiny/">tiny</a>')
# GDAL: an uncompressed TIFF, 64 x 64 bytes, by hand.
pixels = bytes(i * 7 % 256 for i in range(4096))
tags = [(256, 64), (257, 64), (258, 8), (259, 1), (262, 1), (273, 8), (277, 1), (278, 64), (279, 4096)]
tiff = struct.pack('<2sHI', b'II', 42, 8 + len(pixels)) + pixels + struct.pack('<H', len(tags))
tiff += b''.join(struct.pack('<HHII', tag, 4, 1, value) for tag, value in tags) + struct.pack('<I', 0)
write('picture.tif', tiff)
def digest(content):
    return hashlib.sha256(content).hexdigest()
# cargo: a sparse registry, and go: a mirror of modules. Both escape names in their own way.
manifest = b'[package]\nname = "tiny"\nversion = "1.0.0"\nedition = "2021"\n'
crate = tar('cargo/crates/tiny/1.0.0/download', {'tiny-1.0.0/Cargo.toml': manifest, 'tiny-1.0.0/src/lib.rs': b'pub const ANSWER: u8 = 42;\n'})
write('cargo/config.json', json.dumps({'dl': 'http://registry.example/cargo/crates/{crate}/{version}/download'}))
write('cargo/ti/ny/tiny', json.dumps({'name': 'tiny', 'vers': '1.0.0', 'deps': [], 'cksum': digest(crate), 'features': {}, 'yanked': False}) + '\n')
module, version = 'example.org/Tiny', 'v1.0.0'
at = 'go/example.org/!tiny/@v/'
mod = 'module example.org/Tiny\n\ngo 1.16\n'
buffer = io.BytesIO()
with zipfile.ZipFile(buffer, 'w') as out:
    out.writestr(f'{module}@{version}/go.mod', mod)
    out.writestr(f'{module}@{version}/tiny.go', 'package tiny\n\nconst Answer = 42\n')
write(at + 'list', version + '\n')
write(at + version + '.info', json.dumps({'Version': version, 'Time': '2026-01-01T00:00:00Z'}))
write(at + version + '.mod', mod)
write(at + version + '.zip', buffer.getvalue())
# skopeo: an image in the form of a registry.
layer = tar('layer', {'hello.txt': b'hello\n' * 1000})
config = json.dumps({'architecture': 'amd64', 'os': 'linux', 'config': {}, 'rootfs': {'type': 'layers', 'diff_ids': ['sha256:' + digest(gzip.decompress(layer))]}}).encode()
def blob(kind, content):
    return {'mediaType': f'application/vnd.oci.image.{kind}', 'digest': 'sha256:' + digest(content), 'size': len(content)}
oci = 'application/vnd.oci.image.manifest.v1+json'
manifest = json.dumps({'schemaVersion': 2, 'mediaType': oci, 'config': blob('config.v1+json', config), 'layers': [blob('layer.v1.tar+gzip', layer)]}).encode()
write('v2/index.html', '{}')
for name in ['latest', 'sha256:' + digest(manifest)]: write('v2/app/manifests/' + name, manifest)
for content in [config, layer]: write('v2/app/blobs/sha256:' + digest(content), content)
write('v2/app/tags/list', json.dumps({'name': 'app', 'tags': ['latest']}))
write('_redirects', '/moved /text.txt 301\n/gone /x 410\n')
write('_headers', f'/v2/app/manifests/*\n  Content-Type: {oci}\n/v2/*\n  Docker-Distribution-Api-Version: registry/2.0\n')
# Chromium: a page that reads the database by ranges, and one that reads a PDF of 200 pages.
page = '<!doctype html><script%s>%s</script>'
write('chromium/sql.html', '<script src=index.js></script>' + page % ('', '''
createDbWorker([{from: "inline", config: {serverMode: "full", url: "/data.sqlite", requestChunkSize: 4096}}],
  "sqlite.worker.js", "sql-wasm.wasm").then(async at => {
  const [{n}] = await at.db.query("select max(a) + 1 as n from t"), [{b}] = await at.db.query("select b from t where a = 1500")
  const {totalFetchedBytes: bytes} = await at.worker.getStats()
  console.log(`${n} rows, row 1500 ${b === ROW}, few bytes ${bytes < 100000}`)
}).catch(error => console.log(error))'''.replace('ROW', json.dumps(row))))
write('chromium/pdf.html', page % (' type=module', '''
import * as pdf from "./pdf.mjs"
pdf.GlobalWorkerOptions.workerSrc = "./pdf.worker.mjs"
try {
  const it = await pdf.getDocument({url: "/pages.pdf", disableAutoFetch: true, disableStream: true}).promise
  const {items} = await (await it.getPage(150)).getTextContent()
  const parts = performance.getEntriesByType("resource").filter(it => it.name.endsWith("/pages.pdf"))
  const bytes = parts.reduce((sum, it) => sum + it.encodedBodySize, 0)
  console.log(`${it.numPages} pages, page 150 ${items[0].str === "page 150"}, ${bytes} bytes, few bytes ${bytes > 0 && bytes < 1000000}`)
} catch (error) { console.log(error) }'''))
count, out, places = 200, bytearray(b'%PDF-1.4\n'), []
def add(content):
    places.append(len(out))
    out.extend(b'%d 0 obj\n%s\nendobj\n' % (len(places), content))
add(b'<< /Type /Catalog /Pages 2 0 R >>')
add(b'<< /Type /Pages /Count %d /Kids [%s] >>' % (count, b' '.join(b'%d 0 R' % (4 + i) for i in range(count))))
add(b'<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>')
for i in range(count):
    add(b'<< /Type /Page /Parent 2 0 R /MediaBox [0 0 200 200] /Contents %d 0 R /Resources << /Font << /F 3 0 R >> >> >>' % (4 + count + i))
for i in range(count):
    content = b'BT /F 12 Tf 20 100 Td (page %d) Tj ET\n%%' % (i + 1) + b'x' * 20_000
    add(b'<< /Length %d >>\nstream\n%s\nendstream' % (len(content), content))
start = len(out)
out += b'xref\n0 %d\n0000000000 65535 f \n' % (len(places) + 1) + b''.join(b'%010d 00000 n \n' % at for at in places)
out += b'trailer << /Size %d /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF\n' % (len(places) + 1, start)
write('pages.pdf', bytes(out))
PYTHON
if command -v zsyncmake >/dev/null; then
    (cd site && zsyncmake -u big.bin -o big.bin.zsync big.bin && zsyncmake -u long.txt -o long.txt.zsync long.txt)
fi
if command -v git >/dev/null; then
    git init -q work/git
    git -C work/git -c user.name=a -c user.email=a@example.org commit -q --allow-empty -m first
    cp site/text.txt work/git/
    git -C work/git add text.txt
    git -C work/git -c user.name=a -c user.email=a@example.org commit -q -m second
    git clone -q --bare work/git site/repository.git
    git -C site/repository.git update-server-info
fi
if command -v dpkg-deb >/dev/null; then
    mkdir -p work/deb/DEBIAN work/deb/usr/share/tiny site/deb
    printf 'Package: tiny\nVersion: 1.0~rc1+b1\nArchitecture: all\nMaintainer: a <a@example.org>\nDescription: tiny\n' >work/deb/DEBIAN/control
    cp site/text.txt work/deb/usr/share/tiny/
    dpkg-deb --root-owner-group -b work/deb 'site/deb/tiny_1.0~rc1+b1_all.deb' >/dev/null
    {
        cat work/deb/DEBIAN/control
        printf 'Filename: ./tiny_1.0~rc1+b1_all.deb\nSize: %s\nSHA256: %s\n\n' "$(stat -c %s site/deb/tiny*.deb)" "$(sha256sum site/deb/tiny*.deb | cut -d' ' -f1)"
    } >site/deb/Packages
    gzip -9nk site/deb/Packages
fi
if command -v ostree >/dev/null; then
    mkdir -p work/tree/a site/ostree
    head -c 100000 /dev/urandom >work/tree/a/big; echo hello >work/tree/hello
    ostree init --repo=site/ostree --mode=archive
    ostree commit --repo=site/ostree --branch=main --subject=first work/tree >/dev/null
    echo more >>work/tree/hello
    ostree commit --repo=site/ostree --branch=main --subject=second work/tree >/dev/null
    ostree static-delta generate --repo=site/ostree --empty main >/dev/null 2>&1
    ostree summary -u --repo=site/ostree
fi
if command -v ffmpeg >/dev/null; then
    mkdir -p site/film
    make="ffmpeg -v error -y -f lavfi -i testsrc=size=320x240:rate=10 -f lavfi -i sine=frequency=440 -t 12 -pix_fmt yuv420p"
    $make -g 10 -f hls -hls_time 2 -hls_list_size 0 site/film/list.m3u8
    $make -g 10 site/film/late.mp4
    $make -c:v libtheora -c:a libvorbis site/film/film.ogv
fi
for file in sql.js-httpvfs/dist/{index.js,sqlite.worker.js,sql-wasm.wasm} pdfjs-dist/build/{pdf.mjs,pdf.worker.mjs}; do
    if [ -e npm/node_modules/$file ]; then cp npm/node_modules/$file site/chromium/; fi
done
