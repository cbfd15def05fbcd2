// SPDX-License-Identifier: Apache-2.0
// Times of attention in profile bf16: forward and backward of micro-batches, decode. FLOPs count the causal
// half; backward is 2.5 forwards. attention_peer.py prints the same rows for PyTorch. `decode` as the
// argument: those rows alone. "fresh": as in a decode step, pages are read while the launch before still
// runs.
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "device/cuda/launch.h"
#include "device/cuda/memory.h"
#include "ops/attention/attention_bf16_cuda.h"

namespace {

using namespace lockstep;
using numerics::Bf16;
using ops::AttentionShape;

uint32_t next(uint64_t& state) {
  state = state * 6364136223846793005ULL + 1442695040888963407ULL;
  return static_cast<uint32_t>(state >> 33);
}
std::vector<Bf16> random_values(int64_t n, uint64_t seed) {
  std::vector<Bf16> values(static_cast<size_t>(n));
  for (Bf16& x : values) {
    const float sum = static_cast<float>(next(seed) % 65536 + next(seed) % 65536) * 0x1p-16F - 1.0F;
    x = numerics::float_to_bfloat16(sum * 2.45F);  // variance 1
  }
  return values;
}

template <typename F>
double median_us(const cuda::Context& context, const F& run, int repeats = 21) {
  cudaEvent_t begin, end;
  cuda::check(cudaEventCreate(&begin), "event");
  cuda::check(cudaEventCreate(&end), "event");
  std::vector<double> times;
  for (int i = 0; i < repeats + 3; ++i) {
    cuda::check(cudaEventRecord(begin, context.stream()), "event");
    run();
    cuda::check(cudaEventRecord(end, context.stream()), "event");
    cuda::check(cudaEventSynchronize(end), "event");
    float ms = 0;
    cuda::check(cudaEventElapsedTime(&ms, begin, end), "event");
    if (i >= 3) times.push_back(ms * 1000.0);
  }
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

template <typename T>
cuda::DeviceBuffer<T> upload(const cuda::Context& context, const std::vector<T>& from) {
  cuda::DeviceBuffer<T> to(static_cast<int64_t>(from.size()));
  to.upload(context, from.data(), to.size());
  return to;
}

void training(const cuda::Context& context, const char* name, const AttentionShape& shape,
              const std::vector<int32_t>& lengths, int64_t segment, int repeats = 21) {
  std::vector<int32_t> begin;
  int64_t total = 0;
  double pairs = 0;
  for (int32_t length : lengths) {
    begin.push_back(static_cast<int32_t>(total));
    total += (length + 15) / 16 * 16;
    pairs += 0.5 * length * length;
  }
  const int64_t ld = (shape.heads + 2 * shape.kv_heads) * shape.head_size;
  const int64_t width = shape.heads * shape.head_size;
  auto qkv = upload(context, random_values(total * ld, 1));
  auto d_out = upload(context, random_values(total * width, 2));
  auto begins = upload(context, begin);
  auto rows = upload(context, lengths);
  cuda::DeviceBuffer<Bf16> out(total * width), d_qkv(total * ld);
  cuda::DeviceBuffer<float> m(total * shape.heads), r(total * shape.heads);
  cuda::DeviceBuffer<unsigned long long> at(1);
  cuda::fill(context, at.data(), 0xFF, 8);
  const int64_t longest = *std::max_element(lengths.begin(), lengths.end());
  auto cos = upload(context, std::vector<float>(static_cast<size_t>(longest * shape.head_size / 2), 0.6F));
  auto sin = upload(context, std::vector<float>(static_cast<size_t>(longest * shape.head_size / 2), 0.8F));
  const ops::AttentionSamplesCuda samples{begins.data(), rows.data(), begins.size(), longest, total};
  context.reserve_scratch(ops::attention_backward_bf16_scratch(shape, total));
  const double forward = median_us(
      context,
      [&] {
        ops::attention_forward_bf16_cuda(context, shape, qkv.data(), ld, samples, out.data(), m.data(),
                                         r.data(), {at.data(), 0}, segment);
      },
      repeats);
  const double backward = median_us(
      context,
      [&] {
        ops::attention_backward_bf16_cuda(context, shape, qkv.data(), ld, out.data(), d_out.data(), m.data(),
                                          r.data(), samples, {cos.data(), sin.data()}, d_qkv.data());
      },
      repeats);
  const double flops = 4.0 * pairs * static_cast<double>(shape.heads * shape.head_size);
  std::printf("%-28s segment %4lld  forward %8.1f us %6.1f TFLOP/s   backward %8.1f us %6.1f TFLOP/s\n", name,
              static_cast<long long>(segment), forward, flops / forward * 1e-6, backward,
              2.5 * flops / backward * 1e-6);
}

void decode(const cuda::Context& context, const char* name, const AttentionShape& shape,
            const std::vector<int32_t>& lengths, int64_t segment, bool with_fresh = false) {
  const auto rows = static_cast<int64_t>(lengths.size());
  const int64_t longest = *std::max_element(lengths.begin(), lengths.end());
  const int64_t per_sequence = (longest + 63) / 64;
  const int64_t block = shape.kv_heads * 64 * shape.head_size;
  constexpr int kLayers = 8;  // walked in turn, so that the keys come from memory
  std::vector<int32_t> table(static_cast<size_t>(rows * per_sequence)), sequence(lengths.size());
  uint64_t state = 3;
  for (size_t i = 0; i < table.size(); ++i) table[i] = static_cast<int32_t>(i);
  for (size_t i = table.size() - 1; i > 0; --i) std::swap(table[i], table[next(state) % (i + 1)]);
  for (size_t i = 0; i < sequence.size(); ++i) sequence[i] = static_cast<int32_t>(i);
  const std::vector<Bf16> values = random_values(1 << 20, 4);  // over and over
  const int64_t page_values = static_cast<int64_t>(table.size()) * kLayers * 2 * block;
  cuda::DeviceBuffer<Bf16> pages(page_values);
  for (int64_t i = 0; i < page_values; i += 1 << 20)
    pages.upload(context, values.data(), std::min<int64_t>(1 << 20, page_values - i), i);
  auto tables = upload(context, table);
  auto sequences = upload(context, sequence);
  auto keys = upload(context, lengths);
  const int64_t width = shape.heads * shape.head_size;
  const int64_t kv_width = shape.kv_heads * shape.head_size;
  const int64_t ld = width + 2 * kv_width;
  auto q = upload(context, random_values(rows * ld, 5));
  ops::FreshKeysCuda fresh;
  if (with_fresh) fresh = {q.data() + width, q.data() + width + kv_width, ld};
  cuda::DeviceBuffer<Bf16> out(rows * width);
  cuda::DeviceBuffer<unsigned long long> at(1);
  cuda::fill(context, at.data(), 0xFF, 8);
  const auto run = [&](int layer) {
    const ops::KvPagesCuda cache{pages.data(),      kLayers * 2 * block,
                                 layer * 2 * block, (layer * 2 + 1) * block,
                                 tables.data(),     per_sequence};
    ops::attention_decode_bf16_cuda(context, shape, q.data(), ld, rows, sequences.data(), keys.data(),
                                    longest, cache, out.data(), width, {at.data(), 0}, segment, fresh);
  };
  run(0);
  cudaGraph_t graph;
  cudaGraphExec_t executable;
  cuda::check(cudaStreamBeginCapture(context.stream(), cudaStreamCaptureModeGlobal), "capture");
  for (int i = 0; i < 10 * kLayers; ++i) run(i % kLayers);
  cuda::check(cudaStreamEndCapture(context.stream(), &graph), "capture");
  cuda::check(cudaGraphInstantiate(&executable, graph, 0), "graph");
  const double us =
      median_us(context, [&] { cuda::check(cudaGraphLaunch(executable, context.stream()), "graph"); }) /
      (10 * kLayers);
  double bytes = 0;
  for (int32_t n : lengths) bytes += 4.0 * n * static_cast<double>(shape.kv_heads * shape.head_size);
  std::printf("%-35s segment %4lld  decode  %8.2f us %6.2f TB/s\n",
              (std::string(name) + (with_fresh ? ", fresh" : "")).c_str(), static_cast<long long>(segment),
              us, bytes / us * 1e-6);
}

std::vector<int32_t> between(int n, int low, int high) {
  uint64_t state = 9;
  std::vector<int32_t> lengths;
  for (int i = 0; i < n; ++i) lengths.push_back(low + static_cast<int32_t>(next(state) % (high - low + 1)));
  return lengths;
}

void decodes(const cuda::Context& context, const AttentionShape& qwen) {
  for (const bool fresh : {false, true}) {
    decode(context, "decode 1 x 250", qwen, {250}, 512, fresh);
    for (const int n : {32, 128, 256}) {
      const std::string name = "decode " + std::to_string(n) + " x 100..400";
      decode(context, name.c_str(), qwen, between(n, 100, 400), 512, fresh);
    }
    decode(context, "decode 256 x 100..1400", qwen, between(256, 100, 1400), 512, fresh);
  }
  decode(context, "decode 1 x 1400", qwen, {1400}, 512);
  decode(context, "decode 1 x 8000", qwen, {8000}, 512);
  decode(context, "decode 256 x 100..400 of 128", {16, 4, 128}, between(256, 100, 400), 512);
}

}  // namespace

int main(int argc, char** argv) {
  const cuda::Context context(0);
  const AttentionShape qwen{14, 2, 64};
  if (argc > 1 && std::strcmp(argv[1], "decode") == 0) {
    decodes(context, qwen);
    return 0;
  }
  if (argc > 1) {  // for a profiler
    training(context, "64 x 400", qwen, std::vector<int32_t>(64, 400), 512, 1);
    training(context, "8 x 1124", qwen, std::vector<int32_t>(8, 1124), 512, 1);
    return 0;
  }
  for (int64_t segment : {512, 256, 1024, 0}) {
    training(context, "64 x 400", qwen, std::vector<int32_t>(64, 400), segment);
    training(context, "8 x 1124", qwen, std::vector<int32_t>(8, 1124), segment);
  }
  training(context, "256 x 100..1400", qwen, between(256, 100, 1400), 512);
  training(context, "8 x 1124, 16/4 of 128", {16, 4, 128}, std::vector<int32_t>(8, 1124), 512);
  decodes(context, qwen);
  return 0;
}
