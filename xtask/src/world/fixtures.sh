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
    cd site/deb
    {
        cat ../../work/deb/DEBIAN/control
        printf 'Filename: ./tiny_1.0~rc1+b1_all.deb\nSize: %s\nSHA256: %s\n\n' "$(stat -c %s tiny*.deb)" "$(sha256sum tiny*.deb | cut -d' ' -f1)"
    } >Packages
    gzip -9nk Packages
fi
