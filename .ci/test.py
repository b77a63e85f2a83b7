#!/usr/bin/env python3
"""Runs the workspace's tests, several test binaries at once, and each failed test twice more, alone.

usage: .ci/test.py [TEST BINARY]...

Most of a test is waiting, so that one binary more runs at once than there are processors, each with as
many tests at once as cargo would run. Each one's output is printed when it has ended, with its time and
that of the processors.

A failed test that then passes twice is unsteady: the run continues, and the test is named in the file
$GANNET_TESTS_UNSTEADY with the output of its failure, which `.ci/run` prints at its end. An unsteady
test is a defect, in the test or in the product: both have happened. Everything else fails: a test
that fails again, a test binary that ends by a signal, more than FAILED_MAX failures.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time

# More failures than these are no matter of a busy machine.
FAILED_MAX = 8

# Those that take longest begin first: what remains at the end is short.
LONG = ["hung_hosts", "sim", "doc", "publish_remote", "acme", "many_hosts", "fleet", "resolver"]

# Those that run alone, after the others: they bound what one client waits while others flood.
ALONE = ["budget"]

OUTPUT = re.compile(r"^---- (\S+) stdout ----$")
NAME = re.compile(r"^    (\S+)$")


class Tests:
    """A test binary, or the documentation's tests."""

    def __init__(self, name, command, folder):
        self.name, self.command, self.folder = name, command, folder
        self.status, self.output = None, ""

    def run(self, *arguments):
        """Runs them, and keeps exit status and output; returns seconds of the clock and of processors."""
        begin = time.monotonic()
        with tempfile.TemporaryFile() as output:
            process = subprocess.Popen(
                [*self.command, *arguments],
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
            _, status, used = os.wait4(process.pid, 0)
            process.returncode = self.status = os.waitstatus_to_exitcode(status)
            output.seek(0)
            self.output = output.read().decode(errors="replace")
        return time.monotonic() - begin, used.ru_utime + used.ru_stime

    def failures(self):
        """The names of the failed tests, and the output of each.

        The harness prints the output of the failed tests, then their names, both below "failures:".
        """
        names, outputs, output = [], {}, None
        for line in self.output.splitlines():
            if line == "failures:":
                names, output = [], None
            elif named := OUTPUT.match(line):
                output = outputs.setdefault(named[1], [])
            elif line.startswith("test result:"):
                break
            elif output is not None:
                output.append(line)
            elif name := NAME.match(line):
                names.append(name[1])
        return {name: outputs.get(name, []) for name in names}


def build(wanted):
    """Builds the workspace's tests; returns those to run together, the longest first, and those to run alone."""
    cargo = ["cargo", "test", "--workspace"]
    built = subprocess.run(
        [*cargo, "--no-run", "--message-format", "json-render-diagnostics"],
        stdout=subprocess.PIPE,
        text=True,
    )
    if built.returncode != 0:
        sys.exit("the tests do not build")
    found = []
    for line in built.stdout.splitlines():
        message = json.loads(line)
        if message["reason"] != "compiler-artifact" or not message["profile"]["test"]:
            continue
        folder, target = os.path.dirname(message["manifest_path"]), message["target"]
        name = f"{os.path.basename(folder)} {os.path.relpath(target['src_path'], folder)}"
        if not wanted or target["name"] in wanted:
            found.append((target["name"], Tests(name, [message["executable"]], folder)))
    if missing := set(wanted) - {name for name, _ in found}:
        sys.exit(f"no test binary has one of these names: {', '.join(missing)}")
    if not wanted:
        found.append(("doc", Tests("documentation", [*cargo, "--doc"], None)))
    found.sort(key=lambda it: LONG.index(it[0]) if it[0] in LONG else len(LONG))
    together = [tests for name, tests in found if name not in ALONE]
    return together, [tests for name, tests in found if name in ALONE]


def run_all(all_tests, count):
    """Runs these, so many at once."""
    rest, lock = iter(all_tests), threading.Lock()

    def run_rest():
        while True:
            with lock:
                tests = next(rest, None)
            if tests is None:
                return
            seconds, used = tests.run()
            with lock:
                print(f"\n==> {tests.name}: {seconds:.1f} s, {used:.1f} s of processors")
                print(tests.output, end="", flush=True)

    threads = [threading.Thread(target=run_rest) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def is_unsteady(tests, name, output):
    """Runs a failed test twice more, alone; whether it then passes. If so, it is noted."""
    for _ in range(2):
        print(f"\n==> again, alone: {tests.name} {name}", flush=True)
        tests.run("--exact", name)
        print(tests.output, end="", flush=True)
        if tests.status != 0:
            print(f"\n==> failed again: {tests.name} {name}")
            return False
    with open(os.environ.get("GANNET_TESTS_UNSTEADY", os.devnull), "a") as unsteady:
        print(f"unsteady: {tests.name} {name}", *output, sep="\n    ", file=unsteady)
    return True


def main():
    together, alone = build(sys.argv[1:])
    run_all(together, len(os.sched_getaffinity(0)) + 1)
    run_all(alone, 1)
    all_tests = together + alone
    failed = [(tests, tests.failures()) for tests in all_tests if tests.status != 0]
    for tests, failures in failed:
        print(f"\n==> failed: {tests.name}: exit status {tests.status}", *failures, sep="\n    ")
    # Without the name of a failed test, they ended in another way than by a test.
    if not all(failures for _, failures in failed) or sum(len(it) for _, it in failed) > FAILED_MAX:
        return 1
    for tests, failures in failed:
        for name, output in failures.items():
            if not is_unsteady(tests, name, output):
                return 1
    return 0


sys.exit(main())
