// SPDX-License-Identifier: Apache-2.0
// The numerics headers as the device compiler understands them. Built as it is, a compile check. Built with
// -DLOCKSTEP_DEVICE_CHECK_MAIN, a program that evaluates every function on the GPU and on the host over
// pseudo-random and special inputs and compares bits:
//   nvcc -std=c++20 -gencode=arch=compute_90a,code=sm_90a --fmad=false -Xcompiler -ffp-contract=off -Isrc
//        -DLOCKSTEP_DEVICE_CHECK_MAIN src/numerics/numerics_device.cu -o device_check
#include <cstdint>

#include "numerics/bfloat16.h"
#include "numerics/digest.h"
#include "numerics/fixed_point.h"
#include "numerics/math.h"
#include "numerics/philox.h"
#include "numerics/reduce.h"
#include "numerics/tc16.h"

namespace lockstep::numerics {
namespace {

// One answer of 64 bits of each function to the same 64 random bits. Inputs are spread over all exponents or
// over the function's own range, by the lowest bit.

LOCKSTEP_HD float input32(uint64_t bits, float range) {
  const auto word = static_cast<uint32_t>(bits >> 32);
  const float uniform = static_cast<float>(static_cast<int32_t>(word)) * 0x1p-31F;
  return (bits & 1U) != 0 ? float_from_bits(word) : uniform * range;
}
LOCKSTEP_HD double input64(uint64_t bits, double range) {
  const double uniform = static_cast<double>(static_cast<int64_t>(bits)) * 0x1p-63;
  return (bits & 1U) != 0 ? double_from_bits(bits) : uniform * range;
}

LOCKSTEP_HD uint64_t tc16_answer(uint64_t bits) {
  uint16_t a[kTc16Products];
  uint16_t b[kTc16Products];
  for (int k = 0; k < kTc16Products; ++k) {
    const uint64_t word = draw(bits, Purpose::kData, 0, 1, static_cast<uint32_t>(k));
    a[k] = static_cast<uint16_t>(word);
    b[k] = static_cast<uint16_t>(word >> 16);
    if ((bits & 1U) == 0) {  // exponents near each other
      a[k] = static_cast<uint16_t>((a[k] & 0x83FFU) | 0x3C00U);
      b[k] = static_cast<uint16_t>((b[k] & 0x83FFU) | 0x3C00U);
    }
  }
  return tc16_step_bits(static_cast<uint32_t>(bits >> 32), a, b);
}

// A block made of the bits, in both lanes, mixed and finished.
LOCKSTEP_HD uint64_t digest_answer(uint64_t bits) {
  Digest128 lanes;
  for (int i = 0; i < 16; ++i) {
    const uint64_t word = bits * (2 * static_cast<uint64_t>(i) + 1);
    lanes.lo += digest_product(word, digest_key(i));
    lanes.hi += digest_product(word, digest_key(i + kDigestKeyOffset));
  }
  const Digest128 mixed = digest_add(digest_mix(lanes, bits & 1023U), digest_mix({bits, ~bits}, bits >> 60));
  const Digest128 whole = digest_finish(mixed, bits >> 20);
  return whole.lo ^ (whole.hi * 3);
}

LOCKSTEP_HD uint64_t row_dot_answer(uint64_t bits) {
  float a[300];
  for (int i = 0; i < 300; ++i) {
    const uint64_t word = (bits + static_cast<uint64_t>(i)) * 0x9E3779B97F4A7C15ULL;
    a[i] = static_cast<float>(static_cast<int32_t>(static_cast<uint32_t>(word >> 32))) * 0x1p-31F;
  }
  return float_bits(row_dot(a, a + 20, static_cast<int64_t>(bits % 280)));
}

LOCKSTEP_HD uint64_t answer_integers(int function, uint64_t bits) {
  const float x = input32(bits, 262144.0F);
  switch (function) {
    case 13:
      return draw(bits, static_cast<Purpose>(bits & 3U), bits >> 9, static_cast<uint32_t>(bits >> 3),
                  static_cast<uint32_t>(bits >> 17));
    case 14: {
      const Philox4 p =
          philox4x32(bits, static_cast<uint32_t>(bits), 1, 2, static_cast<uint32_t>(bits >> 32));
      return (static_cast<uint64_t>(p.x[0] ^ p.x[2]) << 32) | (p.x[1] ^ p.x[3]);
    }
    case 15:
      return digest_answer(bits);
    case 16:
      return tc16_answer(bits);
    case 17:
      return float_to_bfloat16(float_from_bits(static_cast<uint32_t>(bits)));
    case 18:
      return float_bits(bfloat16_to_float(static_cast<uint16_t>(bits)));
    case 19:
      return float_bits(float16_to_float(static_cast<uint16_t>(bits)));
    case 20:
      return in_gradient_range(x, 0x1p18F) ? static_cast<uint64_t>(gradient_to_fixed(x)) : 0;
    case 21:
      return float_bits(gradient_from_fixed(static_cast<int64_t>(bits) >> (bits & 31U)));
    case 22:
      return float_bits(gradient_bound(static_cast<int64_t>(bits >> 44) + 1));
    case 23:
      return float_bits(pow2f(static_cast<int>(bits % 254) - 126));
    case 24: {
      const float factor = float_from_bits(static_cast<uint32_t>(bits >> 32));
      const float scaled = scale_by_pow2(factor, static_cast<int>(bits % 400) - 272);
      return scaled != scaled ? kNanBits : float_bits(scaled);  // a NaN's payload is the machine's
    }
    default:
      return row_dot_answer(bits);
  }
}

LOCKSTEP_HD uint64_t answer(int function, uint64_t bits) {
  switch (function) {
    case 0:
      return float_bits(numerics::exp(input32(bits, 105.0F)));
    case 1:
      return float_bits(numerics::log(input32(bits, 4.0F)));
    case 2:
      return float_bits(numerics::sigmoid(input32(bits, 30.0F)));
    case 3:
      return float_bits(numerics::rsqrt(input32(bits, 4.0F)));
    case 4:
      return float_bits(exp2_fraction(input32(bits & ~uint64_t{1}, 0.5F)));
    case 5:
      return float_bits(round_even(input32(bits & ~uint64_t{1}, 4194303.0F)));
    case 6:
      return double_bits(numerics::exp(input64(bits, 746.0)));
    case 7:
      return double_bits(numerics::exp2(input64(bits, 1077.0)));
    case 8:
      return double_bits(numerics::log(input64(bits, 2.0)));
    case 9:
      return double_bits(numerics::log2(input64(bits, 2.0)));
    case 10:
      return double_bits(numerics::sin(input64(bits, 0x1p24)));
    case 11:
      return double_bits(numerics::cos(input64(bits, 0x1p24)));
    case 12:  // positions and frequencies of RoPE
      return double_bits(numerics::sin(static_cast<double>(bits >> 44) *
                                       numerics::exp2(static_cast<double>(bits & 63U) * -0.3125)));
    default:
      return answer_integers(function, bits);
  }
}

}  // namespace

// Not in the unnamed namespace, so that the compile check makes code for them.
__global__ void answer_all(int function, uint64_t first, int64_t n, uint64_t* out) {
  const auto step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += step) {
    out[i] = answer(function, draw(first, Purpose::kData, static_cast<uint64_t>(i), 0, 0));
  }
}

// A whole block, as digest_bytes of the host takes it.
__global__ void digest_block(const uint64_t* words, uint64_t index, Digest128* out) {
  *out = digest_mix(digest_lanes(words), index);
}

}  // namespace lockstep::numerics

#if defined(LOCKSTEP_DEVICE_CHECK_MAIN)

#include <cstdio>
#include <vector>

namespace lockstep::numerics {
namespace {

constexpr int kFunctions = 26;  // of answer()

bool succeeded(cudaError_t error, const char* what) {
  if (error != cudaSuccess) std::printf("device check: %s: %s\n", what, cudaGetErrorString(error));
  return error == cudaSuccess;
}

struct Count {
  int64_t equal = 0;
  int64_t total = 0;
};

// False: the device failed.
bool check_function(int function, int64_t n, uint64_t* device, Count* count) {
  answer_all<<<512, 256>>>(function, static_cast<uint64_t>(function), n, device);
  std::vector<uint64_t> got(static_cast<size_t>(n));
  if (!succeeded(cudaGetLastError(), "launch") ||
      !succeeded(cudaMemcpy(got.data(), device, got.size() * 8, cudaMemcpyDeviceToHost), "kernel or copy")) {
    return false;
  }
  int64_t equal = 0;
  for (int64_t i = 0; i < n; ++i) {
    const uint64_t bits =
        draw(static_cast<uint64_t>(function), Purpose::kData, static_cast<uint64_t>(i), 0, 0);
    const uint64_t want = answer(function, bits);
    if (want == got[static_cast<size_t>(i)]) {
      ++equal;
    } else if (i - equal < 3) {
      std::printf("function %d, input %016llx: host %016llx, device %016llx\n", function,
                  static_cast<unsigned long long>(bits), static_cast<unsigned long long>(want),
                  static_cast<unsigned long long>(got[static_cast<size_t>(i)]));
    }
  }
  std::printf("function %2d: %lld of %lld equal\n", function, static_cast<long long>(equal),
              static_cast<long long>(n));
  count->equal += equal;
  count->total += n;
  return true;
}

bool check_digest_blocks(uint64_t* device, Count* count) {
  std::vector<uint64_t> words(kDigestWords);
  for (int block = 0; block < 64; ++block) {
    for (size_t i = 0; i < words.size(); ++i) {
      words[i] = draw(99, Purpose::kData, static_cast<uint64_t>(block), 0, static_cast<uint32_t>(i));
    }
    auto* out = reinterpret_cast<Digest128*>(device + kDigestWords);
    Digest128 got;
    if (!succeeded(cudaMemcpy(device, words.data(), kDigestBlockBytes, cudaMemcpyHostToDevice), "copy"))
      return false;
    digest_block<<<1, 1>>>(device, static_cast<uint64_t>(block), out);
    if (!succeeded(cudaMemcpy(&got, out, sizeof(got), cudaMemcpyDeviceToHost), "digest kernel")) return false;
    const Digest128 want = digest_mix(digest_lanes(words.data()), static_cast<uint64_t>(block));
    count->equal += want.lo == got.lo && want.hi == got.hi ? 1 : 0;
    ++count->total;
  }
  return true;
}

int check_device(int64_t inputs) {
  uint64_t* device = nullptr;
  if (!succeeded(cudaMalloc(&device, static_cast<size_t>(inputs) * 8 + 65536), "cudaMalloc")) return 2;
  Count count;
  for (int function = 0; function < kFunctions; ++function) {
    // The long ones on fewer inputs.
    const int64_t n = function == 15 || function == 16 || function == 25 ? inputs / 8 : inputs;
    if (!check_function(function, n, device, &count)) return 2;
  }
  if (!check_digest_blocks(device, &count)) return 2;
  succeeded(cudaFree(device), "cudaFree");
  std::printf("device check: %lld of %lld equal\n", static_cast<long long>(count.equal),
              static_cast<long long>(count.total));
  return count.equal == count.total ? 0 : 1;
}

}  // namespace
}  // namespace lockstep::numerics

int main() {
  return lockstep::numerics::check_device(int64_t{4} << 20);
}

#endif
