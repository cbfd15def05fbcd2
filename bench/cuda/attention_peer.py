#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""PyTorch's attention in the shapes of attention_bench.cu: FlashAttention, its deterministic mode, cuDNN."""
import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel


def median_us(run, repeats=21):
    times = []
    for i in range(repeats + 3):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        run()
        end.record()
        end.synchronize()
        if i >= 3:
            times.append(begin.elapsed_time(end) * 1000)
    return sorted(times)[len(times) // 2]


def graph_us(run, count=20):
    run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(count):
            run()
    return median_us(graph.replay) / count


def tensors(batch, length, heads, kv_heads, d, queries=None):
    def one(h, n):
        return torch.randn(batch, n, h, d, device="cuda", dtype=torch.bfloat16).transpose(1, 2).requires_grad_()
    return one(heads, queries or length), one(kv_heads, length), one(kv_heads, length)


def training(name, batch, length, heads, kv_heads, d, backend, label):
    q, k, v = tensors(batch, length, heads, kv_heads, d)
    flops = 4 * batch * heads * d * length * length / 2
    try:
        with sdpa_kernel(backend):
            def forward():
                return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
            out = forward()
            gradient = torch.randn_like(out)
            def both():
                torch.autograd.grad(forward(), (q, k, v), gradient)
            t = median_us(forward)
            b = median_us(lambda: torch.autograd.grad(out, (q, k, v), gradient, retain_graph=True))
        print(f"{name:28s} {label:14s} forward {t:8.1f} us {flops / t * 1e-6:6.1f} TFLOP/s   "
              f"backward {b:8.1f} us {2.5 * flops / b * 1e-6:6.1f} TFLOP/s", flush=True)
    except Exception as error:  # a backend that refuses says so
        print(f"{name:28s} {label:14s} refused: {str(error).splitlines()[0][:100]}", flush=True)


def varlen(name, lengths, heads, kv_heads, d):
    """Packed rows through the FlashAttention operator that PyTorch carries; kv heads repeated, as it asks."""
    total = sum(lengths)
    offsets = torch.tensor([0] + lengths, device="cuda").cumsum(0).int()
    q, k, v = (torch.randn(total, heads, d, device="cuda", dtype=torch.bfloat16) for _ in range(3))
    longest = max(lengths)
    flops = sum(4 * heads * d * n * n / 2 for n in lengths)
    def forward():
        return torch.ops.aten._flash_attention_forward(q, k, v, offsets, offsets, longest, longest, 0.0, True, False)
    try:
        out, lse, seed, offset, _ = forward()
        gradient = torch.randn_like(out)
        def backward():
            return torch.ops.aten._flash_attention_backward(gradient, q, k, v, out, lse, offsets, offsets, longest,
                                                            longest, 0.0, True, seed, offset)
        t = median_us(forward)
        for deterministic in (False, True):
            torch.use_deterministic_algorithms(deterministic, warn_only=True)
            b = median_us(backward)
            label = "flash det." if deterministic else "flash"
            print(f"{name:28s} {label:14s} forward {t:8.1f} us {flops / t * 1e-6:6.1f} TFLOP/s   "
                  f"backward {b:8.1f} us {2.5 * flops / b * 1e-6:6.1f} TFLOP/s", flush=True)
    except Exception as error:
        print(f"{name:28s} flash varlen refused: {str(error).splitlines()[0][:120]}", flush=True)
    torch.use_deterministic_algorithms(False)


def decode(name, batch, length, heads, kv_heads, d):
    for backend, label in ((SDPBackend.FLASH_ATTENTION, "flash"), (SDPBackend.CUDNN_ATTENTION, "cudnn")):
        q, k, v = (x.detach() for x in tensors(batch, length, heads, kv_heads, d, queries=1))
        try:
            with sdpa_kernel(backend), torch.no_grad():
                us = graph_us(lambda: F.scaled_dot_product_attention(q, k, v, enable_gqa=True))
            tb = 4 * batch * length * kv_heads * d / us * 1e-6
            print(f"{name:28s} {label:14s} decode  {us:8.1f} us {tb:6.2f} TB/s", flush=True)
        except Exception as error:
            print(f"{name:28s} {label:14s} refused: {str(error).splitlines()[0][:100]}", flush=True)


def main():
    torch.manual_seed(0)
    for name, batch, length, heads, kv_heads, d in (("64 x 400", 64, 400, 14, 2, 64), ("8 x 1124", 8, 1124, 14, 2, 64),
                                                   ("8 x 1124, 16/4 of 128", 8, 1124, 16, 4, 128)):
        training(name, batch, length, heads, kv_heads, d, SDPBackend.CUDNN_ATTENTION, "cudnn")
        training(name, batch, length, heads, kv_heads, d, SDPBackend.FLASH_ATTENTION, "flash")
        torch.use_deterministic_algorithms(True, warn_only=True)
        training(name, batch, length, heads, kv_heads, d, SDPBackend.FLASH_ATTENTION, "flash det.")
        torch.use_deterministic_algorithms(False)
    lengths = torch.randint(100, 1401, (256,)).tolist()
    varlen("256 x 100..1400", lengths, 14, 2, 64)
    decode("decode 256 x 250", 256, 250, 14, 2, 64)
    decode("decode 1 x 250", 1, 250, 14, 2, 64)
    decode("decode 256 x 750", 256, 750, 14, 2, 64)
    decode("decode 1 x 8000", 1, 8000, 14, 2, 64)


if __name__ == "__main__":
    main()
