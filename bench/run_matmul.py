#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""run_matmul.py BUILD [THREADS] [ROUNDS]: our products against OpenBLAS's, in separate processes, alternated.

Prints one row a case with the median rates and their ratio, and writes BUILD/matmul.json. The machine's fma rate is measured
before and after; 'machine busy' when it fell by more than 5 %.
"""
import json
import os
import statistics
import subprocess
import sys

LAYERS = ["qkv", "o", "gate_up", "down", "vocab"]
CASES = [f"{op}:{layer}:{m}" for op in ("forward", "dx", "dw") for layer in LAYERS
         for m in ((1, 8, 16, 32, 256, 512) if op == "forward" else (256, 512)) if not (layer == "vocab" and m == 512)]


def lines(command, environment):
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def main():
    build = sys.argv[1]
    threads = sys.argv[2] if len(sys.argv) > 2 else str(os.cpu_count())
    rounds = int(sys.argv[3]) if len(sys.argv) > 3 else 7
    environment = {k: v for k, v in os.environ.items() if k not in ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE")}
    environment["OPENBLAS_NUM_THREADS"] = threads
    programs = {"ours": f"{build}/bench/matmul_bench", "openblas": f"{build}/bench/openblas_bench"}
    before = subprocess.run([f"{build}/bench/fma_rate"], capture_output=True, text=True, check=True).stdout.strip()
    rates = {}
    for case in CASES:
        for _ in range(rounds):
            for name, program in programs.items():
                for row in lines([program, "--threads", threads, "--seconds", "0.2", case], environment):
                    rates.setdefault((case, name), []).append(row["gflops"])
    after = subprocess.run([f"{build}/bench/fma_rate"], capture_output=True, text=True, check=True).stdout.strip()
    table = []
    for case in CASES:
        ours, peer = (statistics.median(rates[(case, name)]) for name in programs)
        table.append({"case": case, "ours_gflops": ours, "openblas_gflops": peer, "ratio": ours / peer})
        print(f"{case:24} ours {ours:8.1f}  openblas {peer:8.1f} GFLOP/s  ratio {ours / peer:5.2f}")
    print(f"fma rate before: {before}; after: {after}")
    with open(f"{build}/matmul.json", "w") as out:
        json.dump({"threads": threads, "rounds": rounds, "rows": table, "fma_before": before, "fma_after": after}, out, indent=1)


if __name__ == "__main__":
    main()
