"""REDbot over a site: for each resource it asks for gzip, for a range, and with its validators, and notes what is wrong."""

import collections
import http.client
import signal
import sys
import time
from configparser import ConfigParser

import thor
from redbot.note import RedbotNote
from redbot.resource import HttpResource

PORT, *PATHS = sys.argv[1:]

# Notes on answers in a coding that are no defect, each with the reason.
OF_CODINGS = {
    "RANGE_NEG_MISMATCH": "a range counts bytes of the plain file, unless If-Range has the tag of a coding",
    "RANGE_CHANGED": "its entity tag is that of the plain file",
    "RANGE_INCORRECT_LENGTH": "its whole length is that of the plain file",
}

# The same of files with at most so many bytes, all of which REDbot asks for.
OF_SHORT = {"RANGE_CL_FULL": "the part is the whole"}
SHORT_MAX = 97

# Beside what REDbot sends: what the first request of each resource accepts.
CODINGS = ["", "gzip", "br"]

# What is coded after it was first asked for, and how long that may take.
CODED = ["/docs/", "/docs/page", "/docs/page.html", "/proxy", "/big.txt"]
CODED_WITHIN_S = 60

# A check that never ends must not keep the chore from ending: SIGALRM ends this program.
ALL_WITHIN_S = 600

CONFIG = ConfigParser()
CONFIG.read_dict({"redbot": {"enable_local_access": "True"}})


def await_codings():
    """Waits until long text comes in each coding: half of a resource's answers in one would be no defect."""
    connection = http.client.HTTPConnection("127.0.0.1", int(PORT))
    for path in CODED:
        for coding in filter(None, CODINGS):
            found, end = None, time.monotonic() + CODED_WITHIN_S
            while found != coding:
                assert time.monotonic() < end, f"{path} does not come in {coding}"
                connection.request("GET", path, headers={"Accept-Encoding": coding})
                answer = connection.getresponse()
                answer.read()
                found = answer.getheader("Content-Encoding")
                time.sleep(0 if found == coding else 0.02)


def requests():
    for path in PATHS:
        yield "HEAD", path, ""
        for coding in CODINGS:
            yield "GET", path, coding


def is_done(resource):
    """REDbot says so of each check of which no other is under way."""
    return all(check.check_done for check in resource.subreqs.values())


def check_next():
    """Checks one resource after the other."""
    asked = next(pending, None)
    if asked is None:
        thor.stop()
        return
    method, path, coding = asked
    resource = HttpResource(CONFIG["redbot"])
    fields = [("Accept-Encoding", coding)] if coding else []
    resource.set_request(f"http://127.0.0.1:{PORT}{path}", method, fields)

    def check_done():
        if resource.response.complete and not is_done(resource):
            return
        note(asked, resource)
        check_next()

    resource.on("check_done", check_done)
    resource.check()


def note(asked, resource):
    """Counts the answers, and notes REDbot's own notes: those of httplint are of another suite."""
    global count
    assert resource.response.complete, f"no answer: {asked} {resource.fetch_error}"
    answers = [resource, *resource.subreqs.values()]
    count += sum(answer.fetch_started for answer in answers)
    notes = {type(it).__name__: it for answer in answers for it in answer.response.notes if isinstance(it, RedbotNote)}
    for name, it in notes.items():
        if it.level.value == "good":
            continue
        is_short = resource.response.content_length <= SHORT_MAX
        if asked[2] and name in OF_CODINGS or is_short and name in OF_SHORT:
            known.add(name)
        else:
            found[name, str(it.summary)].append(asked)


signal.alarm(ALL_WITHIN_S)
await_codings()
count, found, known, pending = 0, collections.defaultdict(list), set(), requests()
check_next()
thor.run()
for (name, summary), of in sorted(found.items()):
    print(f"{name}: {summary} ({len(of)} resources)", *of[:4], sep="\n    ", file=sys.stderr)
print(f"answers {count} known {len(known)}")
sys.exit(bool(found))
