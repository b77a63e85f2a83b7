"""Requests of many kinds to a server of a site; each answer, with its request, goes through httplint."""

import collections
import socket
import sys
import time

import httplint

PORT, *PATHS = sys.argv[1:]

# Notes that are no defect, each with the reason.
KNOWN = {
    "STATUS_BAD_REQUEST": "the request is a bad one",
    "FRESHNESS_NO_CACHE_NO_VALIDATOR": "a redirect has no content, and no validator",
    "CORS_PREFLIGHT_ONLY": "an OPTIONS by hand shows what a preflight request would get",
}

METHODS = ["GET", "HEAD", "OPTIONS", "POST", "DELETE"]
CODINGS = ["", "gzip, br, zstd", "gzip", "identity;q=0"]
RANGES = ["bytes=0-99", "bytes=0-9,50-60", "bytes=900000-"]


def exchange(method, target, fields):
    """The status, the fields and the content of an answer over a connection of its own."""
    lines = [f"{method} {target} HTTP/1.1", f"Host: localhost:{PORT}", "Connection: close"]
    lines += [f"{name}: {value}" for name, value in fields]
    with socket.create_connection(("127.0.0.1", PORT)) as connection:
        connection.sendall("\r\n".join(lines + ["", ""]).encode())
        answer = b"".join(iter(lambda: connection.recv(65536), b""))
    head, _, content = answer.partition(b"\r\n\r\n")
    first, *rest = head.split(b"\r\n")
    section = [tuple(part.strip() for part in line.split(b":", 1)) for line in rest]
    return first.split(b" ", 2), section, content


def dechunked(rest):
    content = b""
    while rest:
        size, _, rest = rest.partition(b"\r\n")
        size = int(size.split(b";")[0], 16)
        if size == 0:
            break
        content, rest = content + rest[:size], rest[size + 2:]
    return content


def lint(method, target, fields):
    """The notes that are neither good nor informative, and the fields of the answer."""
    (_, status, phrase), section, content = exchange(method, target, fields)
    request = httplint.HttpRequestLinter()
    request.process_request_topline(method.encode(), f"http://localhost:{PORT}{target}".encode(), b"1.1")
    request.process_headers([(name.encode(), value.encode()) for name, value in [("Host", "localhost"), *fields]])
    request.finish_content(True)
    response = httplint.HttpResponseLinter(
        start_time=time.time(), _related=request, no_content=method == "HEAD")
    response.process_response_topline(b"1.1", status, phrase)
    response.process_headers(section)
    named = {name.lower(): value for name, value in section}
    if named.get(b"transfer-encoding") == b"chunked":
        content = dechunked(content)
    response.feed_content(content)
    response.finish_content(True)
    # Several ranges have a content-range each, within the content (RFC 9110, 15.3.7.2).
    is_multipart = named.get(b"content-type", b"").startswith(b"multipart/byteranges")
    notes = [note for note in response.notes if note.level.value not in ("good", "info")]
    return [n for n in notes if not (is_multipart and type(n).__name__ == "PARTIAL_WITHOUT_RANGE")], named


def requests():
    for path in PATHS:
        for method in METHODS:
            for coding in CODINGS:
                yield method, path, [("Accept-Encoding", coding)] if coding else []
        for wanted in RANGES:
            yield "GET", path, [("Range", wanted)]
            yield "GET", path, [("Range", wanted), ("Accept-Encoding", "br")]
        yield "GET", path, [("Origin", "https://a.example")]
        yield "GET", path, [("Want-Repr-Digest", "sha-256=5")]
        _, section, _ = exchange("GET", path, [])
        named = {name.lower(): value.decode() for name, value in section}
        if tag := named.get(b"etag"):
            yield "GET", path, [("If-None-Match", tag)]
            yield "GET", path, [("If-Match", '"x"')]
            yield "GET", path, [("If-Range", tag), ("Range", "bytes=0-5")]
        if date := named.get(b"last-modified"):
            yield "GET", path, [("If-Modified-Since", date)]


count, found, known = 0, collections.defaultdict(list), set()
for request in requests():
    count += 1
    for note in lint(*request)[0]:
        name = type(note).__name__
        if name in KNOWN:
            known.add(name)
        else:
            found[name, str(note.summary)].append(request)
for (name, summary), of in sorted(found.items()):
    print(f"{name}: {summary} ({len(of)} answers)", *of[:4], sep="\n    ", file=sys.stderr)
print(f"answers {count} known {len(known)}")
sys.exit(bool(found))
