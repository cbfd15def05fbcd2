#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Saved checkpoints load in transformers as they are, with the same logits. Installs torch (CPU) and transformers into
# build-interop/venv; not part of make test.
set -eu
venv=build-interop/venv
if [ ! -x "$venv/bin/python" ]; then
  python3 -m venv "$venv" 2>/dev/null || { echo "test-interop: python3-venv is missing; apt-get install python3-venv" >&2; exit 2; }
  "$venv/bin/pip" install -q torch transformers safetensors numpy jinja2 tokenizers
fi
exec "$venv/bin/python" tests/interop/check_transformers.py build/lockstep
