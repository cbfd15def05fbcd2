// SPDX-License-Identifier: Apache-2.0
// LOCKSTEP_HD marks a function compiled by the host and by the device compiler from one text.
#pragma once

#if defined(__CUDACC__)
#define LOCKSTEP_HD __host__ __device__ __forceinline__
#else
#define LOCKSTEP_HD inline
#endif
