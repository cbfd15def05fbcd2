// SPDX-License-Identifier: Apache-2.0
// Times the same products with OpenBLAS: openblas_bench [--threads N] [--seconds S] op:shape:m ... One JSON
// line a way to do it: sgemm ("plain"); for one row also sgemv or sger; for dw also sgemm followed by the
// addition to the integer image, which is what ours does ("image").
#include <cblas.h>

#include <cmath>
#include <memory>
#include <thread>

#include "product_cases.h"

namespace lockstep::bench {
namespace {

struct Peer {
  int threads;
  double seconds;

  template <class Call>
  void report(const Case& c, const char* how, const Call& call) const {
    print_result("openblas", openblas_get_corename(), c, how, threads, time_calls(seconds, call));
  }
};

std::unique_ptr<float[]> random_array(int64_t count, uint64_t seed) {
  std::unique_ptr<float[]> out(new float[static_cast<size_t>(count)]);
  fill_random(out.get(), count, seed);
  return out;
}

// What cases of one product and shape share.
struct Operands {
  std::string key;
  std::unique_ptr<float[]> matrix;  // W, or the gradient of W
  std::vector<int64_t> image;       // dw
  int64_t copies = 0;
};

void prepare(const Case& c, Operands* operands) {
  const std::string key = c.op + c.shape.name;
  if (operands->key == key) return;
  *operands = Operands();
  operands->key = key;
  const int64_t size = c.shape.n * c.shape.k;
  operands->copies = copies_of(size * static_cast<int64_t>(c.op == "dw" ? sizeof(int64_t) : sizeof(float)));
  operands->matrix = random_array(operands->copies * size, 1);
  if (c.op == "dw") operands->image.resize(static_cast<size_t>(operands->copies * size));
}

blasint as_int(int64_t x) {
  return static_cast<blasint>(x);
}

void time_forward(const Peer& peer, const Case& c, Operands* operands) {
  const blasint n = as_int(c.shape.n), k = as_int(c.shape.k), m = as_int(c.m);
  const int64_t size = c.shape.n * c.shape.k;
  const int64_t copies = operands->copies;
  const float* w = operands->matrix.get();
  const auto x = random_array(c.m * c.shape.k, 2);
  const auto y = random_array(c.m * c.shape.n, 3);
  peer.report(c, "plain", [&](int64_t i) {
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, m, n, k, 1.0F, x.get(), k, w + i % copies * size, k,
                0.0F, y.get(), n);
  });
  if (m != 1) return;
  peer.report(c, "vector", [&](int64_t i) {
    cblas_sgemv(CblasRowMajor, CblasNoTrans, n, k, 1.0F, w + i % copies * size, k, x.get(), 1, 0.0F, y.get(),
                1);
  });
}

void time_input_gradient(const Peer& peer, const Case& c, Operands* operands) {
  const blasint n = as_int(c.shape.n), k = as_int(c.shape.k), m = as_int(c.m);
  const int64_t size = c.shape.n * c.shape.k;
  const int64_t copies = operands->copies;
  const float* w = operands->matrix.get();
  const auto dy = random_array(c.m * c.shape.n, 2);
  const auto dx = random_array(c.m * c.shape.k, 3);
  peer.report(c, "plain", [&](int64_t i) {
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, m, k, n, 1.0F, dy.get(), n, w + i % copies * size,
                k, 0.0F, dx.get(), k);
  });
  if (m != 1) return;
  peer.report(c, "vector", [&](int64_t i) {
    cblas_sgemv(CblasRowMajor, CblasTrans, n, k, 1.0F, w + i % copies * size, k, dy.get(), 1, 0.0F, dx.get(),
                1);
  });
}

// image += round(gradient * 2^44), split over the threads.
void add_to_image(const float* gradient, int64_t count, int threads, int64_t* image) {
  const auto part = [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      image[i] += static_cast<int64_t>(std::rint(static_cast<double>(gradient[i]) * 0x1p44));
  };
  std::vector<std::thread> workers;
  for (int t = 1; t < threads; ++t)
    workers.emplace_back(part, count * t / threads, count * (t + 1) / threads);
  part(0, count / threads);
  for (std::thread& worker : workers) worker.join();
}

void time_weight_gradient(const Peer& peer, const Case& c, Operands* operands) {
  const blasint n = as_int(c.shape.n), k = as_int(c.shape.k), m = as_int(c.m);
  const int64_t size = c.shape.n * c.shape.k;
  const int64_t copies = operands->copies;
  float* dw = operands->matrix.get();
  const auto x = random_array(c.m * c.shape.k, 1);
  const auto dy = random_array(c.m * c.shape.n, 2);
  const auto multiply = [&](float* out) {
    cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, n, k, m, 1.0F, dy.get(), n, x.get(), k, 0.0F, out,
                k);
  };
  peer.report(c, "plain", [&](int64_t i) { multiply(dw + i % copies * size); });
  peer.report(c, "image", [&](int64_t i) {
    multiply(dw);
    add_to_image(dw, size, peer.threads, operands->image.data() + i % copies * size);
  });
}

int run(const Options& options) {
  openblas_set_num_threads(options.threads);
  const Peer peer = {options.threads, options.seconds};
  Operands operands;
  for (const Case& c : options.cases) {
    prepare(c, &operands);
    if (c.op == "forward") time_forward(peer, c, &operands);
    if (c.op == "dx") time_input_gradient(peer, c, &operands);
    if (c.op == "dw") time_weight_gradient(peer, c, &operands);
  }
  return 0;
}

}  // namespace
}  // namespace lockstep::bench

int main(int argc, char** argv) {
  return lockstep::bench::run(lockstep::bench::parse_options(argc, argv));
}
