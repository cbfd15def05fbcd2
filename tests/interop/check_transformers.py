# SPDX-License-Identifier: Apache-2.0
"""check_transformers.py PROGRAM CHECKPOINT PROMPTS: a checkpoint Lockstep saved loads in transformers unchanged and means
the same there: parameters, logits, greedy continuation, token ids, rendered chats. PROMPTS: JSONL with a `question` column.
"""
import json
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
import torch
from safetensors.numpy import load_file, save_file
from transformers import AutoModelForCausalLM, AutoTokenizer

PROMPT, NEW = 24, 16


def run(*arguments, stdin=None):
    done = subprocess.run([str(a) for a in arguments], input=stdin, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, arguments))}: exit {done.returncode}\n{done.stderr}")
    return [json.loads(line) for line in done.stdout.splitlines()]


def check(name, same, detail=""):
    print(f"test-interop: {name}: {'equal' if same else 'DIFFERENT'} {detail}")
    if not same:
        sys.exit(1)


def main():
    program, checkpoint, prompts = (pathlib.Path(a).resolve() for a in sys.argv[1:4])
    model, info = AutoModelForCausalLM.from_pretrained(checkpoint, dtype=torch.float32, attn_implementation="eager",
                                                       output_loading_info=True)
    check("parameters", not info["missing_keys"] and not info["unexpected_keys"], f"({len(model.state_dict())} tensors)")
    tokenizer = AutoTokenizer.from_pretrained(checkpoint)
    questions = [json.loads(line)["question"] for line in prompts.read_text().splitlines()[:50]]

    ours = run(program, "debug", "tokenize", "--tokenizer", checkpoint, stdin="".join(json.dumps({"text": q}) + "\n" for q in questions))
    check("token ids", [o["ids"] for o in ours] == [tokenizer(q)["input_ids"] for q in questions], f"({len(questions)} texts)")
    chats = [[{"role": "user", "content": q}] for q in questions]
    ours = run(program, "debug", "template", "--tokenizer", checkpoint,
               stdin="".join(json.dumps({"messages": c, "add_generation_prompt": True}) + "\n" for c in chats))
    theirs = [tokenizer.apply_chat_template(c, tokenize=False, add_generation_prompt=True) for c in chats]
    check("chats", [o["text"] for o in ours] == theirs, f"({len(chats)} chats)")

    stream = [i for text in theirs for i in tokenizer(text)["input_ids"]]
    tokens = np.array(stream[:160], dtype=np.int64).reshape(2, 80)
    with tempfile.TemporaryDirectory() as scratch:
        source, out = f"{scratch}/tokens.safetensors", f"{scratch}/out.safetensors"
        save_file({"tokens": tokens}, source)
        run(program, "debug", "logits", "--hf-checkpoint", checkpoint, "--tokens", source, "--out", out, "--greedy", NEW,
            "--prompt-len", PROMPT)
        ours = load_file(out)
    with torch.no_grad():
        theirs = model(torch.from_numpy(tokens)).logits.numpy()
        row = torch.from_numpy(tokens[:, :PROMPT])
        for _ in range(NEW):
            row = torch.cat([row, model(row).logits[:, -1:].argmax(-1)], dim=1)
    worst = np.abs(ours["logits"] - theirs).max() / np.abs(theirs).max()
    # Sums of binary32 in another order; 1e-4 of the largest logit as in src/loop/debug_logits_test.cpp.
    check("logits", worst <= 1e-4, f"(within {worst:.1e} of the largest)")
    check("greedy continuation", (ours["greedy"] == row.numpy()).all(), f"({NEW} tokens)")
    print("test-interop: passed")


if __name__ == "__main__":
    main()
