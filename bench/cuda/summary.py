#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the GPU benchmarks printed, as JSON and as a short table.

  summary.py OUT.json NAME.txt...     one text a benchmark, named after it

JSON: {"device": ..., "benchmarks": {NAME: [{"row": text before the first number with a unit, "text": the line,
"values": [{"of": word before, "value": number, "unit": ...}], "ratio": ours to the peer, if the line has one}]}}
"""
import json
import pathlib
import re
import sys

UNIT = r"us|ms|s|TF|TFLOP/s|GB/s|TB/s|MB|%"
VALUE = re.compile(rf"(?:(\w+)\s+)?(\d+(?:\.\d+)?)\s*({UNIT})(?![\w/])")
BARE = re.compile(r"(cuBLAS|ours)\s+(\d+(?:\.\d+)?)")  # sgemm_bench: TFLOP/s
RATIO = re.compile(r"ratio\s+(\d+(?:\.\d+)?)")


def rows_of(text):
    rows = []
    for line in text.splitlines():
        values = [{"of": word or "", "value": float(number), "unit": unit} for word, number, unit in VALUE.findall(line)]
        ratio = RATIO.search(line)
        first = VALUE.search(line) or BARE.search(line) or ratio
        if not first:
            continue
        end = first.start(2) if values else first.start()
        if not values:
            values = [{"of": who, "value": float(number), "unit": "TFLOP/s"} for who, number in BARE.findall(line)]
        row = {"row": " ".join(line[:end].split()), "text": line.strip(),
               "values": values}
        if ratio:
            row["ratio"] = float(ratio.group(1))
        if row["text"] not in [r["text"] for r in rows]:  # tables are printed as they grow and once more
            rows.append(row)
    return rows


def main():
    out, files = sys.argv[1], [pathlib.Path(name) for name in sys.argv[2:]]
    texts = {file.stem: file.read_text(errors="replace") for file in files}
    device = next((m.group(1) for t in texts.values() if (m := re.search(r"^(NVIDIA [^,:]+)", t, re.M))), "")
    benchmarks = {name: rows_of(text) for name, text in texts.items()}
    pathlib.Path(out).write_text(json.dumps({"device": device, "benchmarks": benchmarks}, indent=1) + "\n")
    print(f"{'benchmark':22s} {'rows':>5s} {'with a peer':>12s} {'median ratio':>13s} {'least':>6s}  of")
    for name, rows in benchmarks.items():
        ratios = sorted((row["ratio"], row["row"]) for row in rows if "ratio" in row)
        numbers = f"{ratios[len(ratios) // 2][0]:13.2f} {ratios[0][0]:6.2f}  {ratios[0][1]}" if ratios else ""
        print(f"{name:22s} {len(rows):5d} {len(ratios):12d} {numbers}")
    print(f"{device or 'GPU'}: all rows in {out}")


if __name__ == "__main__":
    main()
