#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A step of the recipe's shape in PyTorch and transformers, at its best: decode as a CUDA graph over a static cache, training
compiled, with fused AdamW. Random weights of the Qwen2.5-0.5B shape in bfloat16.

    step_peer.py [--config config.json] [--samples 256] [--prompt 100] [--new 300] [--eager]

Prints seconds of rollout (all new tokens of all samples), of training (forward, backward, AdamW; and of the pass for old
log-probs that such stacks make before it), and milliseconds a token at batch 1.
"""
import argparse
import time

import torch
from transformers import Qwen2Config, Qwen2ForCausalLM, StaticCache

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--config")
parser.add_argument("--samples", type=int, default=256)
parser.add_argument("--prompt", type=int, default=100)
parser.add_argument("--new", type=int, default=300)
parser.add_argument("--micro", type=int, default=32, help="samples of a micro-batch in training")
parser.add_argument("--eager", action="store_true", help="training without torch.compile")
args = parser.parse_args()
torch.backends.cuda.matmul.allow_tf32 = True
torch.manual_seed(1)

SHAPE = dict(hidden_size=896, intermediate_size=4864, num_hidden_layers=24, num_attention_heads=14, num_key_value_heads=2,
             vocab_size=151936, tie_word_embeddings=True, rope_theta=1e6, max_position_embeddings=32768)
config = Qwen2Config.from_json_file(args.config) if args.config else Qwen2Config(**SHAPE)
config._attn_implementation = "sdpa"
with torch.device("cuda"):
    model = Qwen2ForCausalLM(config).to(torch.bfloat16)


def seconds(run):
    torch.cuda.synchronize()
    begin = time.perf_counter()
    run()
    torch.cuda.synchronize()
    return time.perf_counter() - begin


@torch.no_grad()
def rollout(batch):
    """A function that generates args.new tokens for `batch` prompts: prefill eagerly, each further token a graph replay."""
    total = args.prompt + args.new
    cache = StaticCache(config=config, max_batch_size=batch, max_cache_len=total, device="cuda", dtype=torch.bfloat16)
    prompt = torch.randint(config.vocab_size, (batch, args.prompt), device="cuda")
    token = torch.zeros(batch, 1, dtype=torch.long, device="cuda")
    position = torch.full((1,), args.prompt, dtype=torch.long, device="cuda")

    def draw(logits):
        probabilities = torch.softmax(logits[:, -1].float(), -1)
        drawn = torch.multinomial(probabilities, 1)
        log_probs = torch.gather(torch.log(probabilities), 1, drawn)  # as a trainer wants them
        token.copy_(drawn)
        return log_probs

    def step():
        out = model(token, past_key_values=cache, cache_position=position, position_ids=position[None], use_cache=True)
        position.add_(1)
        return draw(out.logits)

    def prefill():
        cache.reset()
        position.fill_(args.prompt)
        places = torch.arange(args.prompt, device="cuda")
        draw(model(prompt, past_key_values=cache, cache_position=places, use_cache=True, logits_to_keep=1).logits)

    prefill()
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(2):
            step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()

    def all_tokens():
        prefill()
        for _ in range(args.new - 1):
            graph.replay()

    return all_tokens


for batch in (args.samples, 1):
    run = rollout(batch)
    run()
    best = min(seconds(run) for _ in range(2))
    print(f"rollout of {batch} x {args.new} tokens: {best:.3f} s, {best / args.new * 1e3:.3f} ms a token", flush=True)
    del run
    torch.cuda.empty_cache()

length = args.prompt + args.new
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-6, fused=True)
tokens = torch.randint(config.vocab_size, (args.samples, length), device="cuda")


def log_probs(rows):
    hidden = model.model(rows).last_hidden_state[:, args.prompt - 1:-1]
    logits = model.lm_head(hidden).float()
    return torch.gather(torch.log_softmax(logits, -1), 2, rows[:, args.prompt:, None])[..., 0]


compiled = log_probs if args.eager else torch.compile(log_probs)


def train():
    for begin in range(0, args.samples, args.micro):
        (-compiled(tokens[begin:begin + args.micro]).mean()).backward()
    optimizer.step()
    optimizer.zero_grad()


@torch.no_grad()
def old_log_probs():
    for begin in range(0, args.samples, args.micro):
        compiled(tokens[begin:begin + args.micro])


for name, run in (("training", train), ("old log-probs", old_log_probs)):
    run()
    print(f"{name} of {args.samples} x {length} tokens: {min(seconds(run) for _ in range(3)):.3f} s", flush=True)
