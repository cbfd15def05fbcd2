// SPDX-License-Identifier: Apache-2.0
#include "ops/adamw/adamw_cuda.h"

#include <algorithm>

#include "cuda_arrays.h"
#include "ops/adamw/adamw.h"
#include "ops/adamw/adamw_bf16.h"

namespace lockstep::ops {
namespace {

using lockstep::testing::for_each_cuda_context;
using lockstep::testing::OnDevice;
using lockstep::testing::same_bits;
using lockstep::testing::TestRandom;
using numerics::Bf16;

// Slices of many sizes with gaps and without, both kinds.
std::vector<AdamWSlice> slices_of(int64_t n, uint64_t seed) {
  TestRandom random(seed);
  std::vector<AdamWSlice> slices;
  for (int64_t at = random.below(3); at < n;) {
    const int64_t sizes[] = {1, 3, 64, 1000, 5000, 20000};
    const int64_t size = std::min(sizes[random.below(6)], n - at);
    slices.push_back({at, size, random.below(2)});
    at += size + (random.below(2) == 0 ? 0 : random.below(70));
  }
  return slices;
}

TEST(AdamWCuda, EqualsReference) {
  LOCKSTEP_NEEDS_GPU();
  for (const int64_t n : {1, 5, 1023, 1024, 4096, 100003}) {
    TestRandom random(static_cast<uint64_t>(n));
    const std::vector<AdamWSlice> slices = slices_of(n, static_cast<uint64_t>(n) + 1);
    std::vector<int64_t> image(static_cast<size_t>(n));
    for (int64_t& i : image) {
      i = static_cast<int64_t>(random.next()) >> (2 + random.below(60));
      if (random.below(9) == 0) i = 0;
    }
    const std::vector<float> m = random.values(n), w = random.values(n);
    std::vector<float> v = random.values(n);
    for (float& x : v) x = x < 0 ? 0 : x;
    AdamWSettings settings;
    const AdamWFactors factors = adamw_factors(settings, 1e-3, n % 2 == 0 ? 1.0 : 0.3, 7);
    std::vector<float> want_m = m, want_v = v, want_w = w;
    std::vector<Bf16> want16(static_cast<size_t>(n), 0xFFFF);
    for (const AdamWSlice& s : slices) {
      adamw_bf16_ref(factors, s.decays != 0, image.data() + s.offset, s.size, want_m.data() + s.offset,
                     want_v.data() + s.offset, want_w.data() + s.offset, want16.data() + s.offset);
    }
    for_each_cuda_context([&](const cuda::Context& context) {
      OnDevice<AdamWSlice> d_slices(context, slices);
      OnDevice<int64_t> d_image(context, image);
      const auto count = static_cast<int64_t>(slices.size());
      for (const bool bf16 : {false, true}) {
        OnDevice<float> d_m(context, m), d_v(context, v), d_w(context, w);
        OnDevice<Bf16> d_weights(context, n);
        if (bf16) {
          adamw_bf16_cuda(context, factors, d_slices.data(), count, n, d_image.data(), d_m.data(), d_v.data(),
                          d_w.data(), d_weights.data());
          EXPECT_TRUE(same_bits(want16, d_weights.host())) << n;
        } else {
          adamw_fp32_cuda(context, factors, d_slices.data(), count, n, d_image.data(), d_m.data(), d_v.data(),
                          d_w.data());
        }
        EXPECT_TRUE(same_bits(want_m, d_m.host())) << n;
        EXPECT_TRUE(same_bits(want_v, d_v.host())) << n;
        EXPECT_TRUE(same_bits(want_w, d_w.host())) << n;
      }
    });
  }
}

}  // namespace
}  // namespace lockstep::ops
