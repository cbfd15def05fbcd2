#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the whole demo in a new folder and holds its last line against the one README.md prints.

usage: demo_test.py PROGRAM README
"""
import pathlib
import re
import subprocess
import sys
import tempfile
import time

SECONDS = 600  # of a busy machine; the demo itself is to take at most 180 on two free cores


def last_line(text):
    lines = text.strip().splitlines()
    return lines[-1] if lines else ""


def fail(message, run):
    print(run.stdout[-4000:], run.stderr[-4000:], sep="\n")
    sys.exit(f"demo_test: {message}")


def main():
    program = pathlib.Path(sys.argv[1]).resolve()
    readme = pathlib.Path(sys.argv[2]).read_text()
    expected = re.search(r"^ *(demo: accuracy .* checkpoint sha256 [0-9a-f]{64})$", readme, re.M)
    if not expected:
        sys.exit("demo_test: README.md does not print the demo's last line")
    with tempfile.TemporaryDirectory() as folder:
        start = time.monotonic()
        run = subprocess.run([program, "demo", "--out", "a demo"], cwd=folder, text=True, capture_output=True,
                             timeout=SECONDS)
        seconds = time.monotonic() - start
        if run.returncode != 0:
            fail(f"exit code {run.returncode}", run)
        if last_line(run.stdout) != expected.group(1):
            fail(f"the last line is not README.md's: {expected.group(1)}", run)
        out = pathlib.Path(folder) / "a demo"
        for name in ("ledger.jsonl", "iter_0000059/SHA256SUMS"):
            if (out / "run-a" / name).read_bytes() != (out / "run-b" / name).read_bytes():
                fail(f"run-a and run-b differ in {name}", run)
        starts = (out / "run-b" / "environment.jsonl").read_text().splitlines()
        if len(starts) != 2:
            fail(f"run-b was started {len(starts)} times, not twice", run)
        again = subprocess.run([program, "demo", "--out", "a demo"], cwd=folder, text=True, capture_output=True)
        if again.returncode != 2 or "in use" not in again.stderr:
            fail(f"a folder in use: exit code {again.returncode}", again)
    print(f"demo_test: passed in {seconds:.0f} s: {last_line(run.stdout)}")


if __name__ == "__main__":
    main()
