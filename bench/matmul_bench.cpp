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

// What cases of one product and shape share.
struct Operands {
  std::string key;
  std::vector<ops::PackedMatrix> packed;  // forward
  Buffer<float> w;                        // dx
  Buffer<int64_t> image;                  // dw
  int64_t copies = 0;
};

void prepare(const cpu::Context& context, const Case& c, Operands* operands) {
  const std::string key = c.op + c.shape.name;
  if (operands->key == key) return;
  *operands = Operands();
  operands->key = key;
  const int64_t size = c.shape.n * c.shape.k;
  if (c.op == "dw") {
    operands->copies = copies_of(size * static_cast<int64_t>(sizeof(int64_t)));
    operands->image = Buffer<int64_t>::zeros(operands->copies * size);
    return;
  }
  operands->copies = copies_of(size * static_cast<int64_t>(sizeof(float)));
  if (c.op == "dx") {
    operands->w = random_buffer(operands->copies * size, 1);
    return;
  }
  const Buffer<float> plain = random_buffer(size, 1);
  operands->packed.resize(static_cast<size_t>(operands->copies));
  for (ops::PackedMatrix& copy : operands->packed) copy.pack(context, plain.data(), c.shape.n, c.shape.k);
}

Timing time_forward(const cpu::Context& context, const Case& c, const Operands& operands, double seconds) {
  const Buffer<float> x = random_buffer(c.m * c.shape.k, 2);
  Buffer<float> y(c.m * c.shape.n);
  return time_calls(seconds, [&](int64_t i) {
    ops::matmul_forward_cpu(context, x.data(), c.shape.k,
                            operands.packed[static_cast<size_t>(i % operands.copies)], c.m, {}, y.data(),
                            c.shape.n);
  });
}

Timing time_input_gradient(const cpu::Context& context, const Case& c, const Operands& operands,
                           double seconds) {
  const auto [name, n, k] = c.shape;
  const int64_t size = n * k;
  const Buffer<float> dy = random_buffer(c.m * n, 2);
  Buffer<float> dx(c.m * k);
  return time_calls(seconds, [&, n = n, k = k](int64_t i) {
    ops::matmul_input_gradient_cpu(context, dy.data(), n, operands.w.data() + i % operands.copies * size, c.m,
                                   n, k, dx.data(), k);
  });
}

Timing time_weight_gradient(const cpu::Context& context, const Case& c, Operands* operands, double seconds) {
  const auto [name, n, k] = c.shape;
  const int64_t size = n * k;
  const Buffer<float> x = random_buffer(c.m * k, 1);
  const Buffer<float> dy = random_buffer(c.m * n, 2);
  bool good = true;
  const Timing result = time_calls(seconds, [&, n = n, k = k](int64_t i) {
    ops::WeightGradientTarget target;
    target.image = operands->image.data() + i % operands->copies * size;
    target.bound = numerics::gradient_bound(32);
    good = ops::matmul_weight_gradient_cpu(context, dy.data(), n, x.data(), k, c.m, n, k, target) && good;
  });
  if (!good) std::fprintf(stderr, "dw: out of range\n");
  return result;
}

int run(const Options& options) {
  const Result<cpu::Isa> isa = cpu::isa_from_name("auto");
  if (!isa.ok()) return 1;
  const cpu::Context context(options.threads, isa.value());
  Operands operands;
  for (const Case& c : options.cases) {
    prepare(context, c, &operands);
    Timing timing{};
    if (c.op == "forward") timing = time_forward(context, c, operands, options.seconds);
    if (c.op == "dx") timing = time_input_gradient(context, c, operands, options.seconds);
    if (c.op == "dw") timing = time_weight_gradient(context, c, &operands, options.seconds);
    print_result("lockstep", cpu::isa_name(isa.value()), c, c.op == "dw" ? "image" : "plain", options.threads,
                 timing);
  }
  return 0;
}

}  // namespace
}  // namespace lockstep::bench

int main(int argc, char** argv) {
  return lockstep::bench::run(lockstep::bench::parse_options(argc, argv));
}
