// SPDX-License-Identifier: Apache-2.0
// The Hopper products against cuBLASLt (the best of its first 8 algorithms) on the shapes of Qwen2.5-0.5B:
// forward and gradients of 8192 and 16384 rows, decode products of 1 to 256 rows with weights that do not
// stay in the L2, in one graph: of cuBLASLt too, which chooses by such graphs. Medians; a table last.
// gemm_bench [train|dW|decode|all], gemm_bench WHAT M [product]; M 0: all
#include <cublasLt.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "device/cuda/error.h"
#include "device/cuda/memory.h"
#include "numerics/bfloat16.h"
#include "ops/matmul/matmul_bf16_cuda.h"

namespace lockstep::bench {
namespace {

using cuda::check;
using cuda::Context;
using cuda::DeviceBuffer;
using ops::Bf16;

void check_lt(cublasStatus_t status, const char* what) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  std::printf("cuBLASLt: %s: %d\n", what, static_cast<int>(status));
  std::exit(1);
}

__global__ void fill_random(Bf16* out, int64_t n, uint64_t seed, float scale) {
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < n;
       i += static_cast<int64_t>(gridDim.x) * blockDim.x) {
    uint64_t z = (static_cast<uint64_t>(i) + seed) * 0x9E3779B97F4A7C15ULL;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
    z ^= z >> 27;
    const int sum = static_cast<int>(z & 0xFFFF) + static_cast<int>((z >> 16) & 0xFFFF) +
                    static_cast<int>((z >> 32) & 0xFFFF) - 98304;
    out[i] = numerics::float_to_bfloat16(static_cast<float>(sum) * 0x1p-16F * scale);
  }
}
DeviceBuffer<Bf16> random_buffer(const Context& context, int64_t n, uint64_t seed, float scale) {
  DeviceBuffer<Bf16> buffer(n);
  fill_random<<<1024, 256, 0, context.stream()>>>(buffer.data(), n, seed, scale);
  check(cudaGetLastError(), "filling");
  return buffer;
}

// Microseconds a call: batches of calls between events, median of the batches.
double time_calls(const Context& context, const std::function<void()>& call, int calls, int batches) {
  cudaEvent_t begin, end;
  check(cudaEventCreate(&begin), "event");
  check(cudaEventCreate(&end), "event");
  call();
  std::vector<float> times;
  for (int i = 0; i < batches; ++i) {
    check(cudaEventRecord(begin, context.stream()), "record");
    for (int j = 0; j < calls; ++j) call();
    check(cudaEventRecord(end, context.stream()), "record");
    check(cudaEventSynchronize(end), "running");
    float ms = 0;
    check(cudaEventElapsedTime(&ms, begin, end), "elapsed");
    times.push_back(ms * 1000.0F / static_cast<float>(calls));
  }
  check(cudaEventDestroy(begin), "event");
  check(cudaEventDestroy(end), "event");
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

// The same of one graph with all calls in it.
double time_graph(const Context& context, const std::function<void(int)>& call, int calls) {
  for (int i = 0; i < calls; ++i) call(i);
  context.synchronize();
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  check(cudaStreamBeginCapture(context.stream(), cudaStreamCaptureModeGlobal), "capture");
  for (int i = 0; i < calls; ++i) call(i);
  check(cudaStreamEndCapture(context.stream(), &graph), "capture");
  check(cudaGraphInstantiate(&exec, graph, 0), "instantiate");
  const double us = time_calls(
      context, [&] { check(cudaGraphLaunch(exec, context.stream()), "replay"); }, 1, 9);
  check(cudaGraphExecDestroy(exec), "graph");
  check(cudaGraphDestroy(graph), "graph");
  return us / calls;
}

// out (column-major m x n) = op(a) op(b) through cuBLASLt.
class Vendor {
 public:
  explicit Vendor(const Context& context) : context_(context), workspace_(int64_t{64} << 20) {
    check_lt(cublasLtCreate(&handle_), "create");
  }
  ~Vendor() { (void)cublasLtDestroy(handle_); }

  struct Shape {
    bool transposed_a, transposed_b;
    int64_t m, n, k;
    cudaDataType out;
  };
  // Chooses for the shape; then run() takes pointers. `time` gives microseconds a call.
  using Time = std::function<double(const std::function<void(const void*)>&)>;
  void choose(const Shape& s, const void* a, const void* b, void* c) {
    choose(s, b, c, [&](const std::function<void(const void*)>& call) {
      return time_calls(
          context_, [&] { call(a); }, 3, 3);
    });
  }
  void choose(const Shape& s, const void* b, void* c, const Time& time) {
    check_lt(cublasLtMatmulDescCreate(&operation_, CUBLAS_COMPUTE_32F, CUDA_R_32F), "desc");
    const cublasOperation_t ta = s.transposed_a ? CUBLAS_OP_T : CUBLAS_OP_N;
    const cublasOperation_t tb = s.transposed_b ? CUBLAS_OP_T : CUBLAS_OP_N;
    check_lt(cublasLtMatmulDescSetAttribute(operation_, CUBLASLT_MATMUL_DESC_TRANSA, &ta, sizeof(ta)), "a");
    check_lt(cublasLtMatmulDescSetAttribute(operation_, CUBLASLT_MATMUL_DESC_TRANSB, &tb, sizeof(tb)), "b");
    const int64_t rows_a = s.transposed_a ? s.k : s.m, rows_b = s.transposed_b ? s.n : s.k;
    check_lt(cublasLtMatrixLayoutCreate(&a_, CUDA_R_16BF, rows_a, s.transposed_a ? s.m : s.k, rows_a), "a");
    check_lt(cublasLtMatrixLayoutCreate(&b_, CUDA_R_16BF, rows_b, s.transposed_b ? s.k : s.n, rows_b), "b");
    check_lt(cublasLtMatrixLayoutCreate(&c_, s.out, s.m, s.n, s.m), "c");
    cublasLtMatmulPreference_t preference;
    check_lt(cublasLtMatmulPreferenceCreate(&preference), "preference");
    const size_t bytes = static_cast<size_t>(workspace_.size_bytes());
    check_lt(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                                  &bytes, sizeof(bytes)),
             "workspace");
    cublasLtMatmulHeuristicResult_t found[8];
    int count = 0;
    check_lt(
        cublasLtMatmulAlgoGetHeuristic(handle_, operation_, a_, b_, c_, c_, preference, 8, found, &count),
        "heuristic");
    (void)cublasLtMatmulPreferenceDestroy(preference);
    double best = 1e30;
    for (int i = 0; i < count; ++i) {
      const double us = time([&](const void* a) { run_with(found[i].algo, a, b, c); });
      if (us < best) {
        best = us;
        algorithm_ = found[i].algo;
      }
    }
  }
  void run(const void* a, const void* b, void* c) { run_with(algorithm_, a, b, c); }
  void forget() {
    (void)cublasLtMatrixLayoutDestroy(a_);
    (void)cublasLtMatrixLayoutDestroy(b_);
    (void)cublasLtMatrixLayoutDestroy(c_);
    (void)cublasLtMatmulDescDestroy(operation_);
  }

 private:
  void run_with(const cublasLtMatmulAlgo_t& algorithm, const void* a, const void* b, void* c) {
    const float one = 1, zero = 0;
    check_lt(
        cublasLtMatmul(handle_, operation_, &one, a, a_, b, b_, &zero, c, c_, c, c_, &algorithm,
                       workspace_.data(), static_cast<size_t>(workspace_.size_bytes()), context_.stream()),
        "matmul");
  }

  const Context& context_;
  DeviceBuffer<char> workspace_;
  cublasLtHandle_t handle_ = nullptr;
  cublasLtMatmulDesc_t operation_ = nullptr;
  cublasLtMatrixLayout_t a_ = nullptr, b_ = nullptr, c_ = nullptr;
  cublasLtMatmulAlgo_t algorithm_{};
};

struct Weight {
  const char* name;
  int64_t n, k;
  ops::MatmulOutput output;
};
const Weight kWeights[] = {{"qkv", 1152, 896, ops::MatmulOutput::kRope},
                           {"o", 896, 896, ops::MatmulOutput::kResidual},
                           {"gate_up", 9728, 896, ops::MatmulOutput::kSwiglu},
                           {"down", 896, 4864, ops::MatmulOutput::kResidual},
                           {"vocabulary", 151936, 896, ops::MatmulOutput::kFloat}};

std::vector<std::string> table;

void row(const char* pass, const Weight& w, int64_t m, const char* note, double us, double vendor_us) {
  char line[160];
  const double flop = 2.0 * static_cast<double>(m) * static_cast<double>(w.n) * static_cast<double>(w.k);
  std::snprintf(line, sizeof(line),
                "%-8s %-10s %6lld %-12s %9.2f us %6.0f TF  Lt %9.2f us %6.0f TF  ratio %.3f", pass, w.name,
                static_cast<long long>(m), note, us, flop / us * 1e-6, vendor_us, flop / vendor_us * 1e-6,
                vendor_us / us);
  table.emplace_back(line);
  std::printf("%s\n", line);
  std::fflush(stdout);
}

struct RopeBuffers {
  DeviceBuffer<float> cos{4096 * 32}, sin{4096 * 32};
  DeviceBuffer<int32_t> positions{32768};
  explicit RopeBuffers(const Context& context) {
    cos.zero(context);
    sin.zero(context);
    positions.zero(context);
  }
};

ops::MatmulForwardBf16 forward_of(const Weight& w, ops::MatmulOutput output, const RopeBuffers& rope,
                                  void* out, Bf16* residual, Bf16* act, const Bf16* bias) {
  ops::MatmulForwardBf16 f;
  f.output = output;
  f.out = out;
  f.ld_out = w.n;
  f.residual = residual;
  f.ld_residual = w.n;
  f.act = act;
  f.ld_act = w.n / 2;
  if (output == ops::MatmulOutput::kRope) {
    f.bias = bias;
    f.rope = {rope.cos.data(), rope.sin.data(), rope.positions.data(), 64, 1024};
  }
  return f;
}

void bench_forward_and_dx(const Context& context, Vendor& vendor, const Weight& w, int64_t m) {
  const bool is_float = w.output == ops::MatmulOutput::kFloat;
  const RopeBuffers rope(context);
  const auto x = random_buffer(context, m * w.k, 1, 1.0F);
  const auto weight = random_buffer(context, w.n * w.k, 2, 0.05F);
  const auto bias = random_buffer(context, w.n, 3, 1.0F);
  auto residual = random_buffer(context, w.n * (is_float ? 1 : m), 4, 1.0F);
  DeviceBuffer<float> out(m * w.n / (is_float ? 1 : 2) + 8);
  DeviceBuffer<Bf16> act(is_float ? 8 : m * w.n / 2);
  const int calls = is_float ? 2 : 10;
  vendor.choose({true, false, w.n, m, w.k, is_float ? CUDA_R_32F : CUDA_R_16BF}, weight.data(), x.data(),
                out.data());
  const double forward = time_calls(
      context, [&] { vendor.run(weight.data(), x.data(), out.data()); }, calls, 7);
  vendor.forget();
  const auto measure = [&](const char* note, ops::MatmulOutput output, int64_t chunk) {
    auto f = forward_of(w, output, rope, out.data(), residual.data(), act.data(), bias.data());
    f.chunk = chunk;
    const double us = time_calls(
        context,
        [&] { ops::matmul_forward_bf16_cuda(context, x.data(), w.k, weight.data(), m, w.n, w.k, f); }, calls,
        7);
    row("forward", w, m, note, us, forward);
  };
  if (!is_float) measure("plain", ops::MatmulOutput::kBf16, 1024);
  measure("epilogue", w.output, 1024);
  if (!is_float) measure("plain 512", ops::MatmulOutput::kBf16, 512);
  measure("epilogue 512", w.output, 512);
  if (w.k > 1024) measure("no fold", w.output, 65536);

  const auto dy = random_buffer(context, m * w.n, 5, 0.01F);
  DeviceBuffer<Bf16> dx(m * w.k);
  vendor.choose({false, false, w.k, m, w.n, CUDA_R_16BF}, weight.data(), dy.data(), dx.data());
  const double input = time_calls(
      context, [&] { vendor.run(weight.data(), dy.data(), dx.data()); }, calls, 7);
  vendor.forget();
  const double our_input = time_calls(
      context,
      [&] {
        ops::matmul_input_gradient_bf16_cuda(context, dy.data(), w.n, weight.data(), m, w.n, w.k, dx.data(),
                                             w.k);
      },
      calls, 7);
  row("dX", w, m, "", our_input, input);
}

void bench_dw(const Context& context, Vendor& vendor, const Weight& w, int64_t m) {
  const int calls = w.output == ops::MatmulOutput::kFloat ? 2 : 10;
  const auto x = random_buffer(context, m * w.k, 1, 1.0F);
  const auto dy = random_buffer(context, m * w.n, 5, 0.01F);
  DeviceBuffer<Bf16> dw(w.n * w.k);
  DeviceBuffer<int64_t> image(w.n * w.k);
  image.zero(context);
  vendor.choose({false, true, w.k, w.n, m, CUDA_R_16BF}, x.data(), dy.data(), dw.data());
  const double matrix = time_calls(
      context, [&] { vendor.run(x.data(), dy.data(), dw.data()); }, calls, 7);
  vendor.forget();
  // Results of the size that training has, and much larger ones.
  const auto small_dy = random_buffer(context, m * w.n, 6, 0x1p-22F);
  struct Case {
    int64_t leaf_rows;
    const Bf16* dy;
    const char* name;
  };
  for (const auto& [leaf_rows, gradient, name] :
       {Case{3200, small_dy.data(), "leaves 3200"}, Case{1024, small_dy.data(), "leaves 1024"},
        Case{3200, dy.data(), "large"}}) {
    std::vector<ops::WeightGradientLeaf> leaves;
    for (int64_t begin = 0; begin < m; begin += leaf_rows) {
      leaves.push_back({static_cast<int32_t>(begin), static_cast<int32_t>(std::min(m, begin + leaf_rows)), 0,
                        1, 1, static_cast<int32_t>(leaves.size())});
    }
    DeviceBuffer<ops::WeightGradientLeaf> device_leaves(static_cast<int64_t>(leaves.size()));
    device_leaves.upload(context, leaves.data(), device_leaves.size());
    DeviceBuffer<unsigned long long> fault(1);
    cuda::fill(context, fault.data(), 0xFF, 8);
    ops::WeightGradientBf16 target;
    target.leaves = device_leaves.data();
    target.leaf_count = static_cast<int32_t>(leaves.size());
    target.image = image.data();
    target.bound = 8192.0F;
    target.fault = {fault.data(), 0};
    const double us = time_calls(
        context,
        [&] {
          ops::matmul_weight_gradient_bf16_cuda(context, gradient, w.n, x.data(), w.k, m, w.n, w.k, target);
        },
        calls, 7);
    row("dW", w, m, name, us, matrix);
  }
}

void bench_decode(const Context& context, Vendor& vendor, const Weight& w, int64_t m) {
  const bool is_float = w.output == ops::MatmulOutput::kFloat;
  const RopeBuffers rope(context);
  const int copies =
      static_cast<int>(std::max<int64_t>(is_float ? 2 : 24, (int64_t{256} << 20) / (w.n * w.k * 2)));
  const auto x = random_buffer(context, m * w.k, 1, 1.0F);
  const auto weight = random_buffer(context, copies * w.n * w.k, 2, 0.05F);
  const auto bias = random_buffer(context, w.n, 3, 1.0F);
  auto residual = random_buffer(context, m * w.n, 4, 1.0F);
  DeviceBuffer<float> out(m * w.n);
  DeviceBuffer<Bf16> act(m * w.n);
  const auto at = [&](int i) { return weight.data() + (i % copies) * w.n * w.k; };
  vendor.choose({true, false, w.n, m, w.k, is_float ? CUDA_R_32F : CUDA_R_16BF}, x.data(), out.data(),
                [&](const std::function<void(const void*)>& call) {
                  return time_graph(
                      context, [&](int i) { call(at(i)); }, copies);
                });
  const double lt = time_graph(
      context, [&](int i) { vendor.run(at(i), x.data(), out.data()); }, copies);
  vendor.forget();
  DeviceBuffer<int32_t> max_exponent(m * w.n / 128 + 1);
  DeviceBuffer<uint64_t> sum(m * w.n / 128 + 1);
  const auto measure = [&](const char* note, int64_t chunk, bool tiles) {
    auto f = forward_of(w, w.output, rope, out.data(), residual.data(), act.data(), bias.data());
    f.chunk = chunk;
    if (w.output == ops::MatmulOutput::kSwiglu) f.out = nullptr;  // decode keeps act only
    if (tiles) {
      if (!ops::matmul_makes_tiles(m, w.n, w.k, f)) return;
      f.tile_max_exponent = max_exponent.data();
      f.tile_sum = sum.data();
      f.tile_scale = 1.4426950F;
    }
    context.reserve_scratch(ops::matmul_forward_bf16_scratch(context, m, w.n, w.k, chunk));
    const double us = time_graph(
        context, [&](int i) { ops::matmul_forward_bf16_cuda(context, x.data(), w.k, at(i), m, w.n, w.k, f); },
        copies);
    row("decode", w, m, note, us, lt);
  };
  measure("", 1024, false);
  if (is_float) measure("sums of tiles", 1024, true);
  measure("chunk 512", 512, false);
}

// m 0: all row counts; product empty: all.
int run(const std::string& what, int64_t only_m, const std::string& product) {
  const Context context(0);
  Vendor vendor(context);
  std::printf("%s, %d multiprocessors\n", context.info().name.c_str(), context.sms());
  const auto wanted = [&](const Weight& w, int64_t m) {
    return (only_m == 0 || m == only_m) && (product.empty() || product == w.name);
  };
  if (what != "decode") {
    for (const Weight& w : kWeights) {
      for (const int64_t m : {8192, 16384}) {
        if (!wanted(w, m) || (w.n > 100000 && m > 8192)) continue;
        if (what != "dW") bench_forward_and_dx(context, vendor, w, m);
        bench_dw(context, vendor, w, m);
      }
    }
  }
  if (what == "decode" || what == "all") {
    for (const int64_t m : {1, 8, 32, 64, 128, 256}) {
      for (const Weight& w : kWeights) {
        if (wanted(w, m)) bench_decode(context, vendor, w, m);
      }
    }
  }
  std::printf("\n");
  for (const std::string& line : table) std::printf("%s\n", line.c_str());
  return 0;
}

}  // namespace
}  // namespace lockstep::bench

int main(int argc, char** argv) {
  try {
    return lockstep::bench::run(argc > 1 ? argv[1] : "all", argc > 2 ? std::atoll(argv[2]) : 0,
                                argc > 3 ? argv[3] : "");
  } catch (const lockstep::cuda::Error& error) {
    std::printf("%s\n", error.what());
    return 1;
  }
}
