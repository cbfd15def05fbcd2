#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""An RL step of the Qwen2.5-0.5B shape in PyTorch, as fast as we could make it: the peer of decode_bench and of
`lockstep train` in the same run.

Rollout: prefill, then a compiled decode step in a CUDA graph, static key/value cache, all sequences in step.
Training: compiled layers, FlashAttention, the recipe's GRPO loss with entropy, fused AdamW; old log-probs by a
forward pass, as an off-the-shelf stack needs them. Every sequence has the same length, so nothing is padded: the
best case. Random weights. Prints seconds (medians) and a JSON line.

  step_peer.py [--sequences 256] [--prompt 100] [--new 300] [--micro 64] [--rounds 3]
"""
import argparse
import json
import time

import torch
import torch.nn.functional as F

LAYERS, HIDDEN, MLP, HEADS, KV_HEADS, SIZE, VOCABULARY = 24, 896, 4864, 14, 2, 64, 151936
QKV = (HEADS + 2 * KV_HEADS) * SIZE


def random_weights(device):
    def matrix(*shape):
        return (torch.randn(*shape, device=device) * 0.02).to(torch.bfloat16).requires_grad_()

    def ones():
        return torch.ones(HIDDEN, device=device, dtype=torch.bfloat16, requires_grad=True)
    layers = [dict(norm1=ones(), qkv=matrix(QKV, HIDDEN), bias=matrix(QKV), o=matrix(HIDDEN, HEADS * SIZE),
                   norm2=ones(), gate_up=matrix(2 * MLP, HIDDEN), down=matrix(HIDDEN, MLP))
              for _ in range(LAYERS)]
    return {"embedding": matrix(VOCABULARY, HIDDEN), "norm": ones(), "layers": layers}


def parameters(w):
    return [w["embedding"], w["norm"]] + [t for layer in w["layers"] for t in layer.values()]


def rope(x, cos, sin):
    a, b = x.float().chunk(2, -1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1).to(x.dtype)


def norm(x, gain):
    y = x.float()
    return (y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype) * gain


def mlp(x, w):
    gate, up = F.linear(norm(x, w["norm2"]), w["gate_up"]).chunk(2, -1)
    return x + F.linear(F.silu(gate) * up, w["down"])


def heads_of(x, w, cos, sin):
    b, t, _ = x.shape
    qkv = F.linear(norm(x, w["norm1"]), w["qkv"], w["bias"]).view(b, t, HEADS + 2 * KV_HEADS, SIZE)
    q, k, v = (part.transpose(1, 2) for part in qkv.split((HEADS, KV_HEADS, KV_HEADS), 2))
    return rope(q, cos, sin), rope(k, cos, sin), v


def layer_full(x, w, cos, sin):
    """All positions of each sequence; also their keys and values."""
    q, k, v = heads_of(x, w, cos, sin)
    o = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
    x = x + F.linear(o.transpose(1, 2).flatten(2), w["o"])
    return mlp(x, w), k, v


def layer_step(x, w, cos, sin, keys, values, position, mask):
    """One position; the query heads of a key head are rows of one product."""
    q, k, v = heads_of(x, w, cos, sin)
    keys.index_copy_(2, position, k)
    values.index_copy_(2, position, v)
    grouped = q.reshape(q.shape[0], KV_HEADS, HEADS // KV_HEADS, SIZE)
    o = F.scaled_dot_product_attention(grouped, keys, values, attn_mask=mask)
    x = x + F.linear(o.reshape(q.shape[0], 1, HEADS * SIZE), w["o"])
    return mlp(x, w)


def choose(x, gain, table):
    logits = F.linear(norm(x[:, -1], gain), table).float()
    noise = torch.empty_like(logits).exponential_()
    token = (torch.softmax(logits, -1) / noise).argmax(-1)
    return token, torch.log_softmax(logits, -1).gather(1, token[:, None])


def score(hidden, gain, table, targets):
    logits = F.linear(norm(hidden, gain), table).float()
    total = torch.logsumexp(logits, -1)
    log_prob = logits.gather(-1, targets[..., None])[..., 0] - total
    entropy = total - (torch.softmax(logits, -1) * logits).sum(-1)
    return log_prob, entropy


class Step:
    def __init__(self, sequences, prompt, new, micro, device):
        self.sequences, self.prompt, self.new, self.micro, self.device = sequences, prompt, new, micro, device
        self.length = prompt + new
        self.w = random_weights(device)
        frequency = 1e6 ** (-torch.arange(0, SIZE, 2, device=device).float() / SIZE)
        angle = torch.arange(self.length, device=device)[:, None] * frequency
        self.cos, self.sin = angle.cos(), angle.sin()
        compiled = torch.compile if device == "cuda" else (lambda f: f)
        self.layer_full, self.layer_step = compiled(layer_full), compiled(layer_step)
        self.choose, self.score = compiled(choose), compiled(score)
        self.optimizer = torch.optim.AdamW(parameters(self.w), lr=1e-6, weight_decay=0.1, betas=(0.9, 0.98),
                                           fused=device == "cuda")
        shape = (sequences, KV_HEADS, self.length, SIZE)
        self.cache = [(torch.zeros(shape, device=device, dtype=torch.bfloat16),
                       torch.zeros(shape, device=device, dtype=torch.bfloat16)) for _ in range(LAYERS)]
        self.ids = torch.randint(0, VOCABULARY, (sequences, self.length), device=device)
        self.position = torch.zeros(1, device=device, dtype=torch.long)
        self.graph = None

    def backbone(self, ids, keep=None):
        x = F.embedding(ids, self.w["embedding"])
        t = ids.shape[1]
        for number, layer in enumerate(self.w["layers"]):
            x, k, v = self.layer_full(x, layer, self.cos[:t], self.sin[:t])
            if keep is not None:
                keep[number][0][:, :, :t] = k
                keep[number][1][:, :, :t] = v
        return x

    def decode_step(self):
        """Token at `position` in, the next one out; all on the device."""
        x = F.embedding(self.ids.index_select(1, self.position), self.w["embedding"])
        cos, sin = self.cos.index_select(0, self.position), self.sin.index_select(0, self.position)
        mask = (torch.arange(self.length, device=self.device) <= self.position)[None, None, None]
        for layer, (keys, values) in zip(self.w["layers"], self.cache):
            x = self.layer_step(x, layer, cos, sin, keys, values, self.position, mask)
        token, _ = self.choose(x, self.w["norm"], self.w["embedding"])
        self.position += 1
        self.ids.index_copy_(1, self.position, token[:, None])

    @torch.no_grad()
    def rollout(self):
        x = self.backbone(self.ids[:, :self.prompt], self.cache)
        token, _ = self.choose(x, self.w["norm"], self.w["embedding"])
        self.ids[:, self.prompt] = token
        self.position.fill_(self.prompt)
        if self.graph is None:
            self.decode_step()  # compiles
            if self.device == "cuda":
                self.position.fill_(self.prompt)
                torch.cuda.synchronize()
                self.graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(self.graph):
                    self.decode_step()
            self.position.fill_(self.prompt)
        for _ in range(self.new - 1):
            if self.graph is not None:
                self.graph.replay()
            else:
                self.decode_step()

    def parts(self):
        for first in range(0, self.sequences, self.micro):
            yield self.ids[first:first + self.micro]

    def scores(self, ids):
        hidden = self.backbone(ids)[:, self.prompt - 1:-1]
        return self.score(hidden, self.w["norm"], self.w["embedding"], ids[:, self.prompt:])

    @torch.no_grad()
    def old_log_probs(self):
        return [self.scores(ids)[0] for ids in self.parts()]

    def train(self, old):
        advantage = torch.randn(self.sequences, 1, device=self.device)
        for number, ids in enumerate(self.parts()):
            log_prob, entropy = self.scores(ids)
            ratio = (log_prob - old[number]).exp()
            a = advantage[number * self.micro:][:ids.shape[0]]
            gain = torch.minimum(ratio * a, ratio.clamp(0.8, 1.28) * a)
            (-(gain + 0.01 * entropy).sum() / (self.sequences * self.new)).backward()
        torch.nn.utils.clip_grad_norm_(parameters(self.w), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in (("sequences", 256), ("prompt", 100), ("new", 300), ("micro", 64), ("rounds", 3)):
        parser.add_argument("--" + name, type=int, default=value)
    parser.add_argument("--device", default="cuda", help="cpu: only to try the script, with small numbers")
    parser.add_argument("--rollout-only", action="store_true")
    a = parser.parse_args()
    torch.manual_seed(1)
    step = Step(a.sequences, a.prompt, a.new, a.micro, a.device)

    def timed(run):
        if a.device == "cuda":
            torch.cuda.synchronize()
        begin = time.perf_counter()
        result = run()
        if a.device == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter() - begin, result

    times = {"rollout": [], "old log-probs": [], "training": []}
    for number in range(a.rounds + 1):  # the first one compiles
        seconds = {"rollout": timed(step.rollout)[0]}
        if not a.rollout_only:
            seconds["old log-probs"], old = timed(step.old_log_probs)
            seconds["training"] = timed(lambda: step.train(old))[0]
        for name, value in seconds.items():
            if number > 0:
                times[name].append(value)
    medians = {name: sorted(v)[len(v) // 2] for name, v in times.items() if v}
    for name, value in medians.items():
        print(f"PyTorch {torch.__version__} {name:14s} {value:7.3f} s")
    print(json.dumps({"peer": "PyTorch " + torch.__version__, "sequences": a.sequences, "prompt": a.prompt,
                      "new": a.new, "seconds": medians}))


if __name__ == "__main__":
    main()
