// SPDX-License-Identifier: Apache-2.0
// First line of a test that needs a GPU. Machines without one (CI) skip it; `make test-gpu` sets
// LOCKSTEP_GPU_REQUIRED, and there it fails instead: nothing that a GPU must show can be passed over unseen.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>

#include "device/cuda/context.h"

#define LOCKSTEP_NEEDS(condition, what)                     \
  do {                                                      \
    if (!(condition)) {                                     \
      if (std::getenv("LOCKSTEP_GPU_REQUIRED") != nullptr)  \
        FAIL() << "LOCKSTEP_GPU_REQUIRED, but no " << what; \
      GTEST_SKIP() << "no " << what << " here";             \
    }                                                       \
  } while (false)

#define LOCKSTEP_NEEDS_GPU() LOCKSTEP_NEEDS(lockstep::cuda::device_count() > 0, "GPU")
#define LOCKSTEP_NEEDS_HOPPER()                                                                 \
  LOCKSTEP_NEEDS(lockstep::cuda::device_count() > 0 && lockstep::cuda::device_info(0).hopper(), \
                 "Hopper "                                                                      \
                 "GPU")
