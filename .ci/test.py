#!/usr/bin/env python3
"""Runs the workspace's tests, and each failed one twice more, alone.

usage: .ci/test.py [CARGO TEST ARGUMENTS]

A test that then passes twice is unsteady: the run continues, and the test is named in the file
$GANNET_TESTS_UNSTEADY with the output of its failure, which `.ci/run` prints at its end. An unsteady
test is a defect, in the test or in the product: both have happened. Everything else fails: a test
that fails again, a test binary that ends by a signal, more than FAILED_MAX failures.
"""

import os
import re
import subprocess
import sys

# More failures than these are no matter of a busy machine.
FAILED_MAX = 8

RUNNING = re.compile(r"^\s+(?:Running .*\(.*\)|Doc-tests \S+)\s*$")
OUTPUT = re.compile(r"^---- (\S+) stdout ----$")
NAME = re.compile(r"^    (\S+)$")
TARGET = re.compile(r"^    `((?:-p|--package) .*)`$")


def run(arguments):
    """Runs cargo, passes its output on, and returns its lines and exit status."""
    process = subprocess.Popen(
        ["cargo", "test", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    lines = []
    for line in process.stdout:
        sys.stdout.write(line)
        sys.stdout.flush()
        lines.append(line.rstrip("\n"))
    return lines, process.wait()


def failures(lines):
    """The failed tests of each target that has some, these targets, and the tests' output.

    The harness prints the output of the failed tests, then their names, both below "failures:".
    """
    sections, targets, outputs = [], [], {}
    names, output = [], None
    for line in lines:
        if RUNNING.match(line) or line.startswith("test result:"):
            if names:
                sections.append(names)
            names, output = [], None
        elif line == "failures:":
            names, output = [], None
        elif named := OUTPUT.match(line):
            output = outputs.setdefault(named[1], [])
        elif output is not None:
            output.append(line)
        elif target := TARGET.match(line):
            targets.append(target[1])
        elif name := NAME.match(line):
            names.append(name[1])
    return sections, targets, outputs


def main():
    arguments = sys.argv[1:]
    lines, status = run([*arguments, "--no-fail-fast"])
    if status == 0:
        return 0
    sections, targets, outputs = failures(lines)
    count = sum(len(section) for section in sections)
    # A target without a failed test did not compile, or ended in another way than by a test.
    if count == 0 or len(sections) != len(targets) or count > FAILED_MAX:
        return 1
    for names, target in zip(sections, targets):
        for name in names:
            for _ in range(2):
                print(f"\n==> again, alone: {target} {name}", flush=True)
                _, status = run([*target.split(), "--", "--exact", name])
                if status != 0:
                    print(f"\n==> failed again: {target} {name}")
                    return 1
            with open(os.environ["GANNET_TESTS_UNSTEADY"], "a") as unsteady:
                print(f"unsteady: {target} {name}", *outputs.get(name, []), sep="\n    ", file=unsteady)
    return 0


sys.exit(main())
