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

blasint as_int(int64_t x) {
  return static_cast<blasint>(x);
}

void time_forward(const Peer& peer, const Case& c) {
  const blasint n = as_int(c.shape.n), k = as_int(c.shape.k), m = as_int(c.m);
  const int64_t size = c.shape.n * c.shape.k;
  const int64_t copies = copies_of(size * 4);
  const auto w = random_array(copies * size, 1);
  const auto x = random_array(c.m * c.shape.k, 2);
  const auto y = random_array(c.m * c.shape.n, 3);
  peer.report(c, "plain", [&](int64_t i) {
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, m, n, k, 1.0F, x.get(), k,
                w.get() + i % copies * size, k, 0.0F, y.get(), n);
  });
  if (m != 1) return;
  peer.report(c, "vector", [&](int64_t i) {
    cblas_sgemv(CblasRowMajor, CblasNoTrans, n, k, 1.0F, w.get() + i % copies * size, k, x.get(), 1, 0.0F,
                y.get(), 1);
  });
}

void time_input_gradient(const Peer& peer, const Case& c) {
  const blasint n = as_int(c.shape.n), k = as_int(c.shape.k), m = as_int(c.m);
  const int64_t size = c.shape.n * c.shape.k;
  const int64_t copies = copies_of(size * 4);
  const auto w = random_array(copies * size, 1);
  const auto dy = random_array(c.m * c.shape.n, 2);
  const auto dx = random_array(c.m * c.shape.k, 3);
  peer.report(c, "plain", [&](int64_t i) {
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, m, k, n, 1.0F, dy.get(), n,
                w.get() + i % copies * size, k, 0.0F, dx.get(), k);
  });
  if (m != 1) return;
  peer.report(c, "vector", [&](int64_t i) {
    cblas_sgemv(CblasRowMajor, CblasTrans, n, k, 1.0F, w.get() + i % copies * size, k, dy.get(), 1, 0.0F,
                dx.get(), 1);
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

void time_weight_gradient(const Peer& peer, const Case& c) {
  const blasint n = as_int(c.shape.n), k = as_int(c.shape.k), m = as_int(c.m);
  const int64_t size = c.shape.n * c.shape.k;
  const int64_t copies = copies_of(size * 8);
  const auto x = random_array(c.m * c.shape.k, 1);
  const auto dy = random_array(c.m * c.shape.n, 2);
  const auto dw = random_array(copies * size, 3);
  const auto multiply = [&](float* out) {
    cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, n, k, m, 1.0F, dy.get(), n, x.get(), k, 0.0F, out,
                k);
  };
  peer.report(c, "plain", [&](int64_t i) { multiply(dw.get() + i % copies * size); });
  std::vector<int64_t> image(static_cast<size_t>(copies * size));
  peer.report(c, "image", [&](int64_t i) {
    multiply(dw.get());
    add_to_image(dw.get(), size, peer.threads, image.data() + i % copies * size);
  });
}

}  // namespace
}  // namespace lockstep::bench

int main(int argc, char** argv) {
  using namespace lockstep::bench;
  const Options options = parse_options(argc, argv);
  openblas_set_num_threads(options.threads);
  const Peer peer = {options.threads, options.seconds};
  for (const Case& c : options.cases) {
    if (c.op == "forward") time_forward(peer, c);
    if (c.op == "dx") time_input_gradient(peer, c);
    if (c.op == "dw") time_weight_gradient(peer, c);
  }
  return 0;
}
