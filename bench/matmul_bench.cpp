// SPDX-License-Identifier: Apache-2.0
// Times our products: matmul_bench [--threads N] [--seconds S] op:shape:m ... One JSON line a case.
#include "core/buffer.h"
#include "device/cpu/context.h"
#include "numerics/fixed_point.h"
#include "ops/matmul/matmul.h"
#include "product_cases.h"

namespace lockstep::bench {
namespace {

Buffer<float> random_buffer(int64_t count, uint64_t seed) {
  Buffer<float> out(count);
  fill_random(out.data(), count, seed);
  return out;
}

Timing time_forward(const cpu::Context& context, const Case& c, double seconds) {
  const auto [name, n, k] = c.shape;
  std::vector<ops::PackedMatrix> w(static_cast<size_t>(copies_of(n * k * 4)));
  {
    const Buffer<float> plain = random_buffer(n * k, 1);
    for (ops::PackedMatrix& copy : w) copy.pack(context, plain.data(), n, k);
  }
  const Buffer<float> x = random_buffer(c.m * k, 2);
  Buffer<float> y(c.m * n);
  return time_calls(seconds, [&](int64_t i) {
    ops::matmul_forward_cpu(context, x.data(), k, w[static_cast<size_t>(i) % w.size()], c.m, {}, y.data(), n);
  });
}

Timing time_input_gradient(const cpu::Context& context, const Case& c, double seconds) {
  const auto [name, n, k] = c.shape;
  const int64_t copies = copies_of(n * k * 4);
  const Buffer<float> w = random_buffer(copies * n * k, 1);
  const Buffer<float> dy = random_buffer(c.m * n, 2);
  Buffer<float> dx(c.m * k);
  return time_calls(seconds, [&](int64_t i) {
    ops::matmul_input_gradient_cpu(context, dy.data(), n, w.data() + i % copies * (c.shape.n * c.shape.k),
                                   c.m, c.shape.n, c.shape.k, dx.data(), c.shape.k);
  });
}

Timing time_weight_gradient(const cpu::Context& context, const Case& c, double seconds) {
  const auto [name, n, k] = c.shape;
  const int64_t copies = copies_of(n * k * 8);
  Buffer<int64_t> image = Buffer<int64_t>::zeros(copies * n * k);
  const Buffer<float> x = random_buffer(c.m * k, 1);
  const Buffer<float> dy = random_buffer(c.m * n, 2);
  bool good = true;
  const Timing result = time_calls(seconds, [&](int64_t i) {
    ops::WeightGradientTarget target;
    target.image = image.data() + i % copies * (c.shape.n * c.shape.k);
    target.bound = numerics::gradient_bound(32);
    good = ops::matmul_weight_gradient_cpu(context, dy.data(), c.shape.n, x.data(), c.shape.k, c.m, c.shape.n,
                                           c.shape.k, target) &&
           good;
  });
  if (!good) std::fprintf(stderr, "dw: out of range\n");
  return result;
}

int run(const Options& options) {
  const Result<cpu::Isa> isa = cpu::isa_from_name("auto");
  if (!isa.ok()) return 1;
  const cpu::Context context(options.threads, isa.value());
  for (const Case& c : options.cases) {
    const auto timer = c.op == "forward" ? time_forward
                       : c.op == "dx"    ? time_input_gradient
                                         : time_weight_gradient;
    print_result("lockstep", cpu::isa_name(isa.value()), c, c.op == "dw" ? "image" : "plain", options.threads,
                 timer(context, c, options.seconds));
  }
  return 0;
}

}  // namespace
}  // namespace lockstep::bench

int main(int argc, char** argv) {
  return lockstep::bench::run(lockstep::bench::parse_options(argc, argv));
}
