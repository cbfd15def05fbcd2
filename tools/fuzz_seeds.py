#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""fuzz_seeds.py FOLDER: first inputs of every fuzz target from the repository's test data, into FOLDER/<target>/."""
import hashlib
import json
import pathlib
import sys
import tarfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
DATA = ROOT / "tests" / "data"


def rows(name):
    return [json.loads(line) for line in (DATA / "golden" / name).read_text().split("\n") if line]


def compact(value):
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def members(archive, wanted):
    with tarfile.open(DATA / archive) as files:
        for member in files:
            if member.isfile() and wanted(member.name):
                yield files.extractfile(member).read()


def safetensors():
    files = [(DATA / "checkpoint" / "reference_writer.safetensors").read_bytes()]
    files += members("hf_tiny.tar.xz", lambda name: name.endswith(".safetensors"))
    for data in files:
        header = data[8 : 8 + int.from_bytes(data[:8], "little")]
        size = len(data) - 8 - len(header)
        if size < 65536:  # the target's size of the data has 16 bits
            yield size.to_bytes(2, "little") + header


def config():
    for path in sorted((ROOT / "configs").glob("*.toml")):
        yield path.read_bytes()
        yield path.read_bytes().replace(b"[run]", b'[run]\nrun_dir = "runs/x"')  # with all that a run needs


def chat_template():
    variables = b""
    for row in rows("jinja_cases.jsonl"):
        if "variables" in row:
            variables = compact(row["variables"])
        else:
            yield row["template"].encode() + b"\0" + variables
    for row in rows("template_cases.jsonl"):
        if "template" in row:
            yield row["template"].encode()


def jsonl():
    for name in ("chat.jsonl", "jinja_cases.jsonl"):
        yield (DATA / "golden" / name).read_bytes()[:4096].rsplit(b"\n", 1)[0]
    yield b'{"a":[1,2.5,null,true],"b":"\\u00e9\\n\\ud83d\\ude00"}\n\n{"c":-0.0,"d":1e300,"e":18446744073709551615}\r\n'
    yield b"train.jsonl@[3:17]"


def tokenizer():
    small = {
        "added_tokens": [{"id": 9, "content": "<|end|>", "special": True, "lstrip": False, "normalized": False}],
        "normalizer": {"type": "NFC"},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
            {"type": "Split", "pattern": {"Regex": "\\p{L}+| ?\\d|\\s+"}, "behavior": "Isolated", "invert": False},
            {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False}]},
        "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2, "\u0120": 3, "\u0120a": 4},
                  "merges": ["a b", ["\u0120", "a"]]}}
    yield b"\0" + compact(small)
    for row in rows("tokenize.jsonl")[:40]:
        yield b"\1" + next((v for v in row.values() if isinstance(v, str)), "").encode()[:512]


def ledger():
    header = '{"lockstep_ledger":1,"profile":"fp32","config":{"lr":1e-06,"steps":4}}'
    digest = "0123456789abcdef" * 2
    lines = [header, '{"step":0,"phase":"rewards","digest":"%s","mean":0.25,"any":true,"prev":"@"}' % digest,
             '{"step":0,"phase":"weights","digest":"%s","tensors":{"a":"%s"},"prev":"@"}' % (digest, digest)]
    for count in (1, 2, 3):
        yield ("\n".join(lines[:count]) + "\n").encode()
    yield ("\n".join(lines)).encode()


def grade():
    for row in rows("grade.jsonl"):
        texts = [v for v in row.values() if isinstance(v, str)]
        label, response = row.get("label", texts[-1]), row.get("response", texts[0])
        if len(response) < 1500:
            yield str(label).replace("\n", " ").encode() + b"\n" + response.encode()


def main():
    folder = pathlib.Path(sys.argv[1])
    for make in (safetensors, config, chat_template, jsonl, tokenizer, ledger, grade):
        target = folder / f"{make.__name__}_fuzz"
        target.mkdir(parents=True, exist_ok=True)
        for seed in make():
            (target / hashlib.sha256(seed).hexdigest()[:16]).write_bytes(seed)


if __name__ == "__main__":
    main()
