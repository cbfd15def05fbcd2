#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times the products against OpenBLAS and against the machine.

Runs build-bench/bench/matmul_bench and openblas_bench in turn, each for the same cases, several rounds; measures the
rate of fma from registers before and after. Prints one line a case (last, a table) and writes all of it as JSON.

A ratio is the median over rounds of (ours / OpenBLAS's of the same round). `fma` is our share of the rate that the
machine has from registers. A round is "busy" when that rate was more than 5 % below the best seen: another program was
running, and the line is marked with '~' when more than half of its rounds were.
"""
import argparse
import json
import os
import pathlib
import platform
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
FEW = [1, 8, 16, 32, 256, 1024]
CASES = [(op, shape, FEW) for op in ("forward", "dx", "dw") for shape in ("qkv", "o", "gate_up", "down")]
CASES += [(op, "vocab", [1, 8, 32, 256]) for op in ("forward", "dx")] + [("dw", "vocab", [256])]
QUICK = [(op, shape, [1, 8, 32, 256]) for op in ("forward", "dx", "dw") for shape in ("qkv", "down")]
BUSY = 0.95


def run_lines(command, threads):
    """JSON lines of a program. Settings that change OpenBLAS's kernels are not passed on."""
    env = {k: v for k, v in os.environ.items() if k not in ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE")}
    env["OPENBLAS_NUM_THREADS"] = str(threads)
    done = subprocess.run(command, env=env, stdout=subprocess.PIPE, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def median_of(rows, key):
    return statistics.median(row[key] for row in rows)


class Bench:
    def __init__(self, options):
        self.options = options
        self.folder = pathlib.Path(options.build) / "bench"
        self.prefix = ["chrt", "-f", "1"] if options.realtime else []
        self.best_fma = {}
        self.rounds = {}  # (op, shape, m, threads) -> list of rounds

    def program(self, name, *arguments):
        return self.prefix + [str(self.folder / name)] + [str(a) for a in arguments]

    def fma(self, threads):
        row = run_lines(self.program("fma_rate", threads, 0.1), threads)[0]
        self.best_fma[threads] = max(self.best_fma.get(threads, 0.0), row["best_gflops"])
        return row["mean_gflops"]

    def one_round(self, op, shape, sizes, threads, ours_first):
        names = [f"{op}:{shape}:{m}" for m in sizes]
        arguments = ["--threads", threads, "--seconds", self.options.seconds, *names]
        before = self.fma(threads)
        results = {}
        order = ("matmul_bench", "openblas_bench") if ours_first else ("openblas_bench", "matmul_bench")
        for name in order:
            if (self.folder / name).exists():
                results[name] = run_lines(self.program(name, *arguments), threads)
        rate = min(before, self.fma(threads))
        for m in sizes:
            ours = [r for r in results["matmul_bench"] if r["m"] == m][0]
            peers = [r for r in results.get("openblas_bench", []) if r["m"] == m]
            plain = max((r["gflops"] for r in peers if r["how"] in ("plain", "vector")), default=0.0)
            image = max((r["gflops"] for r in peers if r["how"] == "image"), default=0.0)
            self.rounds.setdefault((op, shape, m, threads), []).append(
                {"ours": ours["gflops"], "plain": plain, "image": image, "fma": rate,
                 "isa": ours["kernel"], "peer": peers[0]["kernel"] if peers else "none"})

    def summary(self, key):
        rows = self.rounds[key]
        op, shape, m, threads = key
        best = self.best_fma[threads]
        line = {"op": op, "shape": shape, "m": m, "threads": threads, "rounds": len(rows),
                "busy_rounds": sum(r["fma"] < BUSY * best for r in rows),
                "ours_gflops": median_of(rows, "ours"), "openblas_gflops": median_of(rows, "plain"),
                "fma_share": median_of(rows, "ours") / best}
        for how in ("plain", "image"):
            ratios = sorted(r["ours"] / r[how] for r in rows if r[how] > 0)
            if ratios:
                line[f"ratio_{how}"] = statistics.median(ratios)
                line[f"ratio_{how}_range"] = [ratios[0], ratios[-1]]
        return line


def machine():
    name = platform.processor() or platform.machine()
    try:
        for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                name = line.split(":", 1)[1].strip()
                break
    except OSError:
        pass
    return {"processor": name, "cores": os.cpu_count(), "system": platform.platform()}


def print_table(lines, bench):
    peer = next(iter(bench.rounds.values()))[0]
    rates = ", ".join(f"{t} threads {rate:.1f}" for t, rate in sorted(bench.best_fma.items()))
    print(f"\nours: {peer['isa']}; OpenBLAS kernel: {peer['peer']}; fma from registers, GFLOP/s: {rates}")
    print(f"{'op':8}{'shape':9}{'M':>5}{'thr':>4}{'ours':>8}{'peer':>8}{'ratio':>7}  {'(range)':13}{'fma':>5}  equal work")
    for line in lines:
        low, high = line.get("ratio_plain_range", [0, 0])
        equal = f"{line['ratio_image']:.2f}" if "ratio_image" in line else ""
        mark = "~" if 2 * line["busy_rounds"] > line["rounds"] else " "
        print(f"{line['op']:8}{line['shape']:9}{line['m']:5}{line['threads']:4}{line['ours_gflops']:8.1f}"
              f"{line['openblas_gflops']:8.1f}{line.get('ratio_plain', 0):7.2f}{mark} ({low:.2f}-{high:.2f})  "
              f"{100 * line['fma_share']:4.0f}%  {equal}")
    if any(2 * line["busy_rounds"] > line["rounds"] for line in lines):
        print("~ machine busy: the rate of fma was more than 5 % below its best in most of the rounds")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=str(ROOT / "build-bench"))
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=0.1, help="a case in a round, at least")
    parser.add_argument("--threads", default=",".join(str(t) for t in sorted({1, os.cpu_count() or 1})))
    parser.add_argument("--quick", action="store_true", help="fewer shapes")
    parser.add_argument("--only", default="", help="op or op:shape, e.g. dx:down")
    parser.add_argument("--realtime", action="store_true", help="run under chrt -f 1, ahead of other programs (root)")
    parser.add_argument("--json", default="", help="default: BUILD/matmul.json")
    options = parser.parse_args()
    if not (pathlib.Path(options.build) / "bench" / "matmul_bench").exists():
        print(f"{options.build}/bench/matmul_bench is missing; run tools/bench.sh", file=sys.stderr)
        return 2
    bench = Bench(options)
    lines = []
    for threads in [int(t) for t in options.threads.split(",")]:
        for op, shape, sizes in QUICK if options.quick else CASES:
            if options.only and options.only not in (op, f"{op}:{shape}"):
                continue
            for number in range(options.rounds):
                bench.one_round(op, shape, sizes, threads, number % 2 == 0)
            print(f"{op} {shape} {threads} threads: done", file=sys.stderr, flush=True)
    lines = [bench.summary(key) for key in bench.rounds]
    output = pathlib.Path(options.json or pathlib.Path(options.build) / "matmul.json")
    output.write_text(json.dumps({"machine": machine(), "best_fma_gflops": bench.best_fma, "cases": lines,
                                  "rounds": [{"case": key, "rounds": rows} for key, rows in bench.rounds.items()]},
                                 indent=1) + "\n")
    if lines:
        print_table(lines, bench)
    return 0


if __name__ == "__main__":
    sys.exit(main())
