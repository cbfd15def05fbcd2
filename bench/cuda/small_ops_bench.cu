// SPDX-License-Identifier: Apache-2.0
// Times of the ops that are no products and no attention, at the sizes of the recipe (Qwen2.5-0.5B, 102,400
// tokens, 256 sequences), with the bytes that an op must move and the share of a copy's bandwidth it reaches.
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include "device/cuda/launch.h"
#include "device/cuda/memory.h"
#include "numerics/digest.h"
#include "ops/adamw/adamw_cuda.h"
#include "ops/digest/digest_cuda.h"
#include "ops/embedding/embedding_cuda.h"
#include "ops/rms_norm/rms_norm_cuda.h"
#include "ops/rope/rope_cuda.h"
#include "ops/swiglu/swiglu_cuda.h"
#include "ops/tensor_sum/tensor_sum_cuda.h"
#include "ops/vector_gradient/vector_gradient_cuda.h"
#include "ops/vocabulary/vocabulary_cuda.h"

namespace {

using namespace lockstep;
using numerics::Bf16;

constexpr int64_t kRows = 102400;
constexpr int64_t kHidden = 896;
constexpr int64_t kIntermediate = 4864;
constexpr int64_t kQkv = 1152;
constexpr int64_t kHeads = 16;  // of q and k
constexpr int64_t kHeadSize = 64;
constexpr int64_t kVocab = 151936;
constexpr int64_t kSampleable = 151665;
constexpr int64_t kSequences = 256;
constexpr int kLayers = 24;

__device__ float noise(uint64_t i, uint64_t seed) {
  uint64_t z = (i + 1) * 0x9E3779B97F4A7C15ULL + seed;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
  z ^= z >> 31;
  const float sum = static_cast<float>(z & 0xFFFF) + static_cast<float>((z >> 16) & 0xFFFF) +
                    static_cast<float>((z >> 32) & 0xFFFF) + static_cast<float>(z >> 48);
  return (sum * 0x1p-16F - 2.0F) * 1.732F;  // variance 1
}
__device__ void set(float* to, float x) {
  *to = x;
}
__device__ void set(Bf16* to, float x) {
  *to = numerics::float_to_bfloat16(x);
}
__device__ void set(int64_t* to, float x) {
  *to = static_cast<int64_t>(x * 0x1p30F);
}
template <typename T>
__global__ void fill_noise(T* to, int64_t n, float scale, uint64_t seed) {
  const auto step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += step) {
    set(to + i, noise(static_cast<uint64_t>(i), seed) * scale);
  }
}
template <typename T>
cuda::DeviceBuffer<T> random_buffer(const cuda::Context& context, int64_t n, float scale, uint64_t seed) {
  cuda::DeviceBuffer<T> out(n, "a benchmark's input");
  fill_noise<<<1024, 256, 0, context.stream()>>>(out.data(), n, scale, seed);
  cuda::check_launch("filling a buffer");
  return out;
}
template <typename T>
cuda::DeviceBuffer<T> uploaded(const cuda::Context& context, const std::vector<T>& from) {
  cuda::DeviceBuffer<T> out(static_cast<int64_t>(from.size()));
  out.upload(context, from.data(), out.size());
  context.synchronize();
  return out;
}

struct Line {
  std::string name;
  double microseconds;
  double bytes;
  std::string peer;
};

class Bench {
 public:
  explicit Bench(const cuda::Context& context) : context_(context) {
    cuda::check(cudaEventCreate(&begin_), "creating an event");
    cuda::check(cudaEventCreate(&end_), "creating an event");
  }
  // Median of single launches after two for warming up.
  void run(const std::string& name, double bytes, const std::function<void()>& f,
           const std::string& peer = "") {
    constexpr int kRuns = 9;
    std::vector<float> times;
    for (int i = -2; i < kRuns; ++i) {
      cuda::check(cudaEventRecord(begin_, context_.stream()), "recording an event");
      f();
      cuda::check(cudaEventRecord(end_, context_.stream()), "recording an event");
      cuda::check(cudaEventSynchronize(end_), name.c_str());
      float milliseconds = 0;
      cuda::check(cudaEventElapsedTime(&milliseconds, begin_, end_), "reading a time");
      if (i >= 0) times.push_back(milliseconds * 1000.0F);
    }
    std::sort(times.begin(), times.end());
    lines_.push_back({name, times[kRuns / 2], bytes, peer});
  }
  void print() const {
    const double copy = lines_[0].bytes / lines_[0].microseconds;
    std::printf("%-34s %10s %8s %7s %6s  %s\n", "op", "us", "MB", "TB/s", "copy%", "peer");
    for (const Line& line : lines_) {
      const double rate = line.bytes / line.microseconds;
      std::printf("%-34s %10.1f %8.0f %7.2f %6.0f  %s\n", line.name.c_str(), line.microseconds,
                  line.bytes * 1e-6, rate * 1e-6, 100 * rate / copy, line.peer.c_str());
    }
  }

 private:
  const cuda::Context& context_;
  cudaEvent_t begin_ = nullptr, end_ = nullptr;
  std::vector<Line> lines_;
};

uint64_t next(uint64_t* state) {
  *state = *state * 6364136223846793005ULL + 1442695040888963407ULL;
  return *state >> 33;
}

template <typename T>
struct Ops;
template <>
struct Ops<float> {
  static constexpr const char* kName = " fp32";
  static constexpr auto kNorm = ops::rms_norm_forward_fp32_cuda;
  static constexpr auto kNormBackward = ops::rms_norm_backward_fp32_cuda;
  static constexpr auto kSwiglu = ops::swiglu_forward_fp32_cuda;
  static constexpr auto kSwigluBackward = ops::swiglu_backward_fp32_cuda;
  static constexpr auto kEmbedding = ops::embedding_forward_fp32_cuda;
  static constexpr auto kEmbeddingGradient = ops::embedding_gradient_fp32_cuda;
  static constexpr auto kGain = ops::gain_gradient_fp32_cuda;
  static constexpr auto kBias = ops::bias_gradient_fp32_cuda;
};
template <>
struct Ops<Bf16> {
  static constexpr const char* kName = " bf16";
  static constexpr auto kNorm = ops::rms_norm_forward_bf16_cuda;
  static constexpr auto kNormBackward = ops::rms_norm_backward_bf16_cuda;
  static constexpr auto kSwiglu = ops::swiglu_forward_bf16_cuda;
  static constexpr auto kSwigluBackward = ops::swiglu_backward_bf16_cuda;
  static constexpr auto kEmbedding = ops::embedding_forward_bf16_cuda;
  static constexpr auto kEmbeddingGradient = ops::embedding_gradient_bf16_cuda;
  static constexpr auto kGain = ops::gain_gradient_bf16_cuda;
  static constexpr auto kBias = ops::bias_gradient_bf16_cuda;
};

template <typename T>
void rows_bench(const cuda::Context& context, Bench* bench) {
  const std::string profile = Ops<T>::kName;
  constexpr double kE = sizeof(T);
  constexpr double kRowBytes = static_cast<double>(kRows * kHidden) * kE;
  {
    auto x = random_buffer<T>(context, kRows * kHidden, 1, 1);
    auto y = random_buffer<T>(context, kRows * kHidden, 1, 2);
    auto dh = random_buffer<T>(context, kRows * kHidden, 1, 3);
    auto gain = random_buffer<T>(context, kHidden, 1, 4);
    auto r = random_buffer<float>(context, kRows, 1, 5);
    bench->run("rms_norm forward" + profile, 2 * kRowBytes, [&] {
      Ops<T>::kNorm(context, x.data(), gain.data(), 1e-6F, kRows, kHidden, y.data(), r.data());
    });
    bench->run("rms_norm backward" + profile, 4 * kRowBytes, [&] {
      Ops<T>::kNormBackward(context, y.data(), x.data(), gain.data(), r.data(), kRows, kHidden, dh.data());
    });
    std::vector<ops::VectorPiece> pieces;
    for (int32_t at = 0; at < kRows; at += 64) pieces.push_back({at, std::min<int32_t>(at + 64, kRows)});
    auto d_pieces = uploaded(context, pieces);
    cuda::DeviceBuffer<int64_t> image(kHidden);
    cuda::DeviceBuffer<unsigned long long> word(1);
    image.zero(context);
    const cuda::Fault fault = {word.data(), 0};
    bench->run("gain gradient" + profile, 2 * kRowBytes, [&] {
      Ops<T>::kGain(context, y.data(), x.data(), r.data(), kHidden, d_pieces.data(), d_pieces.size(), 1e5F,
                    image.data(), fault);
    });
    bench->run("bias gradient" + profile, kRowBytes, [&] {
      Ops<T>::kBias(context, y.data(), kHidden, kHidden, d_pieces.data(), d_pieces.size(), 1e5F, image.data(),
                    fault);
    });
    // Ids as words are: a few of them often.
    std::vector<int32_t> ids(kRows);
    uint64_t state = 1;
    for (int32_t& id : ids) {
      const double u = static_cast<double>(next(&state) % 1000000) * 1e-6;
      id = static_cast<int32_t>(u * u * u * u * static_cast<double>(kSampleable));
    }
    auto d_ids = uploaded(context, ids);
    auto table = random_buffer<T>(context, kVocab * kHidden, 1, 6);
    cuda::DeviceBuffer<int64_t> table_image(kVocab * kHidden);
    table_image.zero(context);
    bench->run("embedding forward" + profile, 2 * kRowBytes,
               [&] { Ops<T>::kEmbedding(context, table.data(), d_ids.data(), kRows, kHidden, y.data()); });
    bench->run("embedding gradient" + profile, kRowBytes * (1 + 16 / kE), [&] {
      Ops<T>::kEmbeddingGradient(context, x.data(), d_ids.data(), kRows, kHidden, 1e5F, table_image.data(),
                                 fault);
    });
  }
  auto gate_up = random_buffer<T>(context, kRows * kIntermediate * 2, 2, 7);
  auto d_gate_up = random_buffer<T>(context, kRows * kIntermediate * 2, 2, 8);
  auto y = random_buffer<T>(context, kRows * kIntermediate, 1, 9);
  constexpr double kMlp = static_cast<double>(kRows * kIntermediate) * kE;
  bench->run("swiglu forward" + profile, 3 * kMlp,
             [&] { Ops<T>::kSwiglu(context, gate_up.data(), kRows, kIntermediate, y.data()); });
  bench->run("swiglu backward" + profile, 5 * kMlp, [&] {
    Ops<T>::kSwigluBackward(context, y.data(), gate_up.data(), kRows, kIntermediate, d_gate_up.data(),
                            nullptr);
  });
}

void rope_bench(const cuda::Context& context, Bench* bench) {
  auto x = random_buffer<float>(context, kRows * kQkv, 1, 1);
  cuda::DeviceBuffer<Bf16> out(kRows * kQkv);
  auto cos = random_buffer<float>(context, 400 * kHeadSize / 2, 1, 2);
  auto sin = random_buffer<float>(context, 400 * kHeadSize / 2, 1, 3);
  std::vector<int32_t> positions(kRows);
  for (int32_t i = 0; i < kRows; ++i) positions[static_cast<size_t>(i)] = i % 400;
  auto d_positions = uploaded(context, positions);
  const ops::RopeDeviceTable table = {kHeadSize, cos.data(), sin.data()};
  constexpr double kElements = static_cast<double>(kRows * kHeads * kHeadSize);
  bench->run("rope fp32 in place", kElements * 8, [&] {
    ops::rope_fp32_cuda(context, table, d_positions.data(), kRows, kHeads, false, x.data(), kQkv);
  });
  bench->run("rope to bf16", kElements * 6, [&] {
    ops::rope_bf16_cuda(context, table, d_positions.data(), kRows, kHeads, false, x.data(), kQkv, out.data(),
                        kQkv);
  });
}

// Sizes of the parameters of Qwen2.5-0.5B.
std::vector<int64_t> parameter_sizes() {
  std::vector<int64_t> sizes = {kVocab * kHidden, kHidden};
  for (int layer = 0; layer < kLayers; ++layer) {
    for (const int64_t rows : {1, 1, 896, 128, 128, 896, 4864, 4864, 4864}) sizes.push_back(rows * kHidden);
    for (const int64_t size : {896, 128, 128}) sizes.push_back(size);
  }
  return sizes;
}

void parameters_bench(const cuda::Context& context, Bench* bench) {
  std::vector<ops::AdamWSlice> slices;
  ops::TensorSumTable sums;
  int64_t n = 0;
  for (const int64_t size : parameter_sizes()) {
    slices.push_back({n, size, size > 10000 ? 1 : 0});
    ops::add_tensor(&sums, n, size);
    n += (size + 63) / 64 * 64;
  }
  auto image = random_buffer<int64_t>(context, n, 1, 1);
  auto m = random_buffer<float>(context, n, 1e-3F, 2);
  cuda::DeviceBuffer<float> v(n);
  v.zero(context);
  auto w = random_buffer<float>(context, n, 0.02F, 3);
  cuda::DeviceBuffer<Bf16> weights(n);
  auto d_slices = uploaded(context, slices);
  auto d_sums = uploaded(context, sums.slices);
  cuda::DeviceBuffer<double> total(1);
  ops::AdamWFactors f;
  f.beta1 = 0.9F;
  f.one_minus_beta1 = 0.1F;
  f.beta2 = 0.999F;
  f.one_minus_beta2 = 0.001F;
  f.correction1 = 10;
  f.correction2 = 1000;
  f.eps = 1e-8F;
  f.negative_lr = -1e-6F;
  f.weight_decay = 0.1F;
  const auto count = static_cast<double>(n);
  const auto n_slices = static_cast<int64_t>(slices.size());
  bench->run(
      "adamw fp32", count * 32,
      [&] {
        ops::adamw_fp32_cuda(context, f, d_slices.data(), n_slices, n, image.data(), m.data(), v.data(),
                             w.data());
      },
      "4000 us fused AdamW, 28 bytes an element");
  bench->run(
      "adamw bf16", count * 34,
      [&] {
        ops::adamw_bf16_cuda(context, f, d_slices.data(), n_slices, n, image.data(), m.data(), v.data(),
                             w.data(), weights.data());
      },
      "as above");
  bench->run("gradient sum of squares", count * 8, [&] {
    ops::gradient_sum_of_squares_cuda(context, image.data(), d_sums.data(), n_slices, sums.blocks,
                                      total.data(), nullptr);
  });
  ops::DigestTable table;
  for (const ops::AdamWSlice& s : slices) ops::add_tensor(&table, w.data() + s.offset, s.size * 4);
  for (const ops::AdamWSlice& s : slices) ops::add_tensor(&table, image.data() + s.offset, s.size * 8);
  auto d_table = uploaded(context, table.slices);
  cuda::DeviceBuffer<numerics::Digest128> digests(d_table.size());
  bench->run("digests of w and gradient", count * 12, [&] {
    ops::digest_tensors_cuda(context, d_table.data(), d_table.size(), table.groups, digests.data());
  });
}

void vocabulary_bench(const cuda::Context& context, Bench* bench) {
  constexpr int64_t kN = kSequences * kVocab;
  // More logits than the cache holds, in turn.
  std::vector<cuda::DeviceBuffer<float>> sets;
  for (uint64_t i = 0; i < 3; ++i) sets.push_back(random_buffer<float>(context, kN, 3, i));
  size_t turn = 0;
  const auto logits = [&] { return sets[turn++ % sets.size()].data(); };
  const int64_t n_tiles = ops::vocabulary_tile_count(kVocab) * kSequences;
  cuda::DeviceBuffer<int32_t> max(n_tiles);
  cuda::DeviceBuffer<uint64_t> sum(n_tiles);
  cuda::DeviceBuffer<int64_t> entropy(n_tiles);
  cuda::DeviceBuffer<ops::VocabularySums> sums(kSequences);
  cuda::DeviceBuffer<Bf16> out(kN);
  cuda::DeviceBuffer<int32_t> tokens(kSequences);
  cuda::DeviceBuffer<float> log_probs(kSequences);
  cuda::DeviceBuffer<unsigned long long> word(1);
  word.zero(context);
  const cuda::Fault fault = {word.data(), 0};
  std::vector<ops::VocabularyDraw> draws;
  std::vector<ops::VocabularyGradientRow> grads;
  for (uint32_t i = 0; i < kSequences; ++i) {
    draws.push_back({1234, i, 0, 17, 0});
    grads.push_back({static_cast<int32_t>(i * 500), 0.01F, 0.0F});
  }
  auto d_draws = uploaded(context, draws);
  auto d_grads = uploaded(context, grads);
  const float scale = ops::vocabulary_scale(1.0);
  constexpr double kBytes = kN * 4.0;
  const ops::VocabularyTiles plain = {max.data(), sum.data(), nullptr};
  bench->run("vocabulary tiles, no entropy", kBytes, [&] {
    ops::vocabulary_tiles_cuda(context, logits(), kVocab, kSequences, kVocab, scale, plain);
  });
  bench->run(
      "vocabulary sums (tiles, combined)", kBytes,
      [&] { ops::vocabulary_sums_cuda(context, logits(), kVocab, kSequences, kVocab, scale, sums.data()); },
      "159 us log-softmax");
  bench->run("vocabulary gradient to bf16", kN * 6.0, [&] {
    ops::vocabulary_gradient_bf16_cuda(context, logits(), kVocab, kSequences, kVocab, scale, 1, sums.data(),
                                       d_grads.data(), out.data(), kVocab);
  });
  const auto sample = [&](const char* name, const ops::SamplingSettings& settings, const char* peer) {
    bench->run(
        name, kBytes,
        [&] {
          ops::vocabulary_sample_cuda(context, logits(), kVocab, kSequences, kVocab, settings, d_draws.data(),
                                      tokens.data(), log_probs.data(), fault);
        },
        peer);
  };
  sample("sample", {1.0, 1.0, -1, kSampleable}, "411 us multinomial + 159 us log-softmax");
  sample("sample greedy", {0.0, 1.0, -1, kSampleable}, "");
  sample("sample top-p 0.95", {1.0, 0.95, -1, kSampleable}, "2800 us sort alone");
  sample("sample top-k 50", {1.0, 1.0, 50, kSampleable}, "");
  sample("sample top-k 50, top-p 0.95", {1.0, 0.95, 50, kSampleable}, "");
  bench->run("vocabulary gradient in place", kN * 8.0, [&] {
    ops::vocabulary_gradient_fp32_cuda(context, logits(), kVocab, kSequences, kVocab, scale, 1, sums.data(),
                                       d_grads.data());
  });
}

void copy_bench(const cuda::Context& context, Bench* bench) {
  constexpr int64_t kBytes = int64_t{1} << 31;
  auto from = random_buffer<float>(context, kBytes / 4, 1, 1);
  cuda::DeviceBuffer<float> to(kBytes / 4);
  bench->run("copy", 2.0 * kBytes, [&] {
    cuda::check(cudaMemcpyAsync(to.data(), from.data(), kBytes, cudaMemcpyDeviceToDevice, context.stream()),
                "copying");
  });
}

}  // namespace

int main() {
  if (cuda::device_count() == 0) {
    std::printf("no GPU\n");
    return 0;
  }
  const cuda::Context context(0);
  Bench bench(context);
  copy_bench(context, &bench);
  rows_bench<Bf16>(context, &bench);
  rows_bench<float>(context, &bench);
  rope_bench(context, &bench);
  parameters_bench(context, &bench);
  vocabulary_bench(context, &bench);
  bench.print();
  return 0;
}
