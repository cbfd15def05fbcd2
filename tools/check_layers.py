#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Fails when an include goes upward or sideways between the folders named in src/layers.txt.

An op (src/ops/<op>/) and a task (src/tasks/<task>/) count as folders of their own: siblings there
must not include each other either. Tests and benches are held to the same rule.
Also holds: one SPDX line a file, no file over 600 lines, no banned construct.
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
SRC = ROOT / "src"
SIBLING_FREE = ("ops", "tasks", "device")
CODE = {".cpp", ".h", ".cu", ".cuh"}
BANNED = {
    r"-ffast-math|-Ofast|--use_fast_math": "fast-math",
    r"std::(normal|uniform_real|uniform_int|discrete)_distribution": "std distribution (bits differ between libraries)",
    r"std::(reduce|transform_reduce)\b": "unordered reduction",
    r"reduction\(\+": "OpenMP reduction",
    r"\bstd::shuffle\b": "std::shuffle (bits differ between libraries)",
    r"\brand\(\)": "rand()",
}
# Canonical arithmetic may not call libm; these folders hold it.
NO_LIBM = ("numerics", "ops", "model", "rollout", "trainer")
LIBM = re.compile(r"(?:std::|\b)(expf?|exp2f?|logf?|log2f?|log10f?|powf?|sinf?|cosf?|tanhf?|cbrtf?)\s*\(")

LIBM_STD = re.compile(r"std::(expf?|exp2f?|logf?|log2f?|log10f?|powf?|sinf?|cosf?|tanhf?|cbrtf?)\s*\(")


def load_levels():
    levels = {}
    for line in (SRC / "layers.txt").read_text().splitlines():
        line = line.split("#")[0].strip()
        if line:
            name, level = line.split()
            levels[name] = int(level)
    return levels


def folder_of(path_parts):
    """('ops', 'matmul') for ops/matmul/x.h, ('core', None) for core/x.h."""
    sub = path_parts[1] if path_parts[0] in SIBLING_FREE and len(path_parts) > 2 else None
    return path_parts[0], sub


def strip_comments(text):
    return re.sub(r"//[^\n]*", "", re.sub(r"/\*.*?\*/", lambda m: "\n" * m.group().count("\n"), text, flags=re.S))


def check_file(path, levels, errors):
    rel = path.relative_to(SRC)
    text = path.read_text()
    lines = text.splitlines()
    if not lines or "SPDX-License-Identifier: Apache-2.0" not in lines[0]:
        errors.append(f"{path}:1: first line must carry the SPDX line")
    if len(lines) > 600:
        errors.append(f"{path}: {len(lines)} lines; split it by purpose (600 at most)")
    code = strip_comments(text)
    top, sub = folder_of(rel.parts)
    if top not in levels:
        errors.append(f"{path}: folder {top} is not in src/layers.txt")
        return
    for number, line in enumerate(code.splitlines(), 1):
        include = re.match(r'\s*#\s*include\s+"([^"]+)"', line)
        if include:
            parts = pathlib.PurePosixPath(include.group(1)).parts
            if len(parts) == 1 and re.search(r"_(test|test_support|bench)\.(cpp|cu|h)$", path.name):
                continue  # tests/support
            if parts[0] not in levels:
                errors.append(f"{path}:{number}: include path must start with a folder of src/: {include.group(1)}")
                continue
            other, other_sub = folder_of(parts)
            same = other == top and (sub is None or other_sub is None or other_sub == sub)
            if not same and levels[other] >= levels[top]:
                errors.append(f"{path}:{number}: {top}/{sub or ''} (L{levels[top]}) must not include "
                              f"{include.group(1)} (L{levels[other]})")
        for pattern, what in BANNED.items():
            if re.search(pattern, line):
                errors.append(f"{path}:{number}: {what}")
        if top in NO_LIBM and not path.name.endswith(("_test.cpp", "_bench.cpp")):
            # numerics defines functions of these names; there only std:: is libm.
            call = (LIBM_STD if top == "numerics" else LIBM).search(line)
            if call and not re.search(r"(numerics::|\.)" + re.escape(call.group(1)), line):
                errors.append(f"{path}:{number}: libm call {call.group(1)}; use numerics/math.h")


def main():
    levels = load_levels()
    errors = []
    files = [p for p in sorted(SRC.rglob("*")) if p.suffix in CODE]
    for path in files:
        check_file(path, levels, errors)
    for line in errors:
        print(line, file=sys.stderr)
    print(f"check_layers: {len(files)} files, {len(errors)} errors")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
