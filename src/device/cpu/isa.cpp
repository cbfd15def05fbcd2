// SPDX-License-Identifier: Apache-2.0
#include "device/cpu/isa.h"

#include "core/suggest.h"

namespace lockstep::cpu {

bool isa_available(Isa isa) {
  switch (isa) {
    case Isa::kScalar:
      return true;
    case Isa::kAvx2:
#if defined(__x86_64__)
      return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#else
      return false;
#endif
    case Isa::kAvx512:
#if defined(__x86_64__)
      return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
             __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
#else
      return false;
#endif
  }
  return false;
}

const char* isa_name(Isa isa) {
  switch (isa) {
    case Isa::kScalar:
      return "scalar";
    case Isa::kAvx2:
      return "avx2";
    case Isa::kAvx512:
      return "avx512";
  }
  return "?";
}

Result<Isa> isa_from_name(const std::string& name) {
  if (name == "auto") {
    if (isa_available(Isa::kAvx512)) return Isa::kAvx512;
    return isa_available(Isa::kAvx2) ? Isa::kAvx2 : Isa::kScalar;
  }
  for (const Isa isa : {Isa::kScalar, Isa::kAvx2, Isa::kAvx512}) {
    if (name != isa_name(isa)) continue;
    if (!isa_available(isa))
      return invalid("--isa {}: this processor does not have it; use --isa auto", name);
    return isa;
  }
  const std::string near = nearest_name(name, {"auto", "scalar", "avx2", "avx512"});
  return invalid("--isa {}: unknown; use auto, scalar, avx2 or avx512{}", name,
                 near.empty() ? "" : " (did you mean " + near + "?)");
}

Status check_machine() {
#if defined(__x86_64__)
  if (!isa_available(Isa::kAvx2)) {
    return invalid(
        "this processor lacks AVX2 or FMA; Lockstep needs x86-64-v3 (Intel Haswell, AMD Zen, or later)");
  }
#endif
  return ok_status();
}

}  // namespace lockstep::cpu
