"""Downloads paths over HTTP/3 by the script of a page in headless Chromium.

usage: browser.py CHROMIUM CASE AUTHORITY CACERT FOLDER PATH...

What comes for a path is written to FOLDER, in a file by the number of the path.
"""

import base64
import json
import pathlib
import re
import subprocess
import sys

CHROMIUM, _, AUTHORITY, CACERT, FOLDER, *PATHS = sys.argv[1:]

PAGE = """<!doctype html><pre id=all></pre><script type=module>
const fetched = async url => {
  const answer = await fetch(url, {cache: "no-store"});
  if (answer.status != 200) throw `${url}: ${answer.status}`;
  let text = "";
  for (const byte of new Uint8Array(await answer.arrayBuffer())) text += String.fromCharCode(byte);
  return btoa(text);
};
const answers = Promise.all(URLS.map(fetched));
all.textContent = await answers.then(texts => texts.join("\\n"), why => `! ${why}`);
</script>
"""

# For QUIC, Chromium refuses certificates of private authorities unless their keys are listed.
KEY = """openssl x509 -pubkey -noout <"$0" | openssl pkey -pubin -outform DER \\
    | openssl dgst -sha256 -binary | openssl base64"""

folder = pathlib.Path(FOLDER)
page = folder / "page.html"
page.write_text(PAGE.replace("URLS", json.dumps([f"https://{AUTHORITY}{path}" for path in PATHS])))
key = subprocess.run(["sh", "-c", KEY, CACERT], check=True, stdout=subprocess.PIPE, text=True).stdout.strip()
flags = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
    "--disable-extensions", "--disable-background-networking", "--no-proxy-server", "--disable-web-security",
    "--enable-quic", "--host-resolver-rules=MAP localhost 127.0.0.1",
    # With QUIC forced, it cannot fall back to TCP.
    f"--origin-to-force-quic-on={AUTHORITY}", f"--ignore-certificate-errors-spki-list={key}",
    f"--user-data-dir={folder / 'profile'}",
    # Of the page's time, which does not pass while it waits for the network.
    "--virtual-time-budget=60000", "--dump-dom",
]
command = [CHROMIUM, *flags, page.as_uri()]
shown = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, timeout=120)
found = re.search("<pre id=.all.>(.*?)</pre>", shown.stdout, re.DOTALL)
texts = found[1].split("\n") if found else []
if len(texts) != len(PATHS) or texts[0].startswith("!"):
    sys.exit(f"the page shows {texts[:1]}")
for number, text in enumerate(texts):
    (folder / str(number)).write_bytes(base64.b64decode(text))
