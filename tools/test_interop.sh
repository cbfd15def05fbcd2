#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# test_interop.sh [PYTHON]: a checkpoint of the demo loads in transformers as it is and gives the same. Without a PYTHON that
# has torch and transformers, installs them into build-interop/venv. Not part of make test.
set -eu
python=${1:-build-interop/venv/bin/python}
if [ ! -x "$python" ]; then
  trap 'rm -rf build-interop/venv' EXIT   # half an environment would be taken for a whole one
  python3 -m venv build-interop/venv 2>/dev/null || { echo "test-interop: python3-venv is missing; apt-get install python3-venv" >&2; exit 2; }
  build-interop/venv/bin/pip install -q torch transformers safetensors numpy jinja2
  trap - EXIT
fi
demo=build-interop/demo
if [ ! -f "$demo/run-a/latest_checkpointed_iteration.txt" ]; then
  rm -rf "$demo"
  mkdir -p build-interop
  build/lockstep demo --out "$demo"
fi
exec "$python" tests/interop/check_transformers.py build/lockstep "$demo/run-a/iter_0000059" "$demo/data/test.jsonl"
