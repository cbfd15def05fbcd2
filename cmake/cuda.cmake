# SPDX-License-Identifier: Apache-2.0
# The GPU backend: whether it is built, and nvcc's flags. LOCKSTEP_HAS_CUDA says so to the other files.
set(LOCKSTEP_HAS_CUDA OFF)
if(NOT LOCKSTEP_CUDA STREQUAL "off")
  find_package(CUDAToolkit 12.4 QUIET)
  if(CUDAToolkit_FOUND AND CUDAToolkit_NVCC_EXECUTABLE)
    set(CMAKE_CUDA_COMPILER ${CUDAToolkit_NVCC_EXECUTABLE} CACHE FILEPATH "")
    set(CMAKE_CUDA_ARCHITECTURES OFF)  # named in the flags: the suffix a of sm_90a matters
    enable_language(CUDA)
    if(NOT DEFINED CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # CMake 3.25 with nvcc 12 or 13
      set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
      set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
    endif()
    set(CMAKE_CUDA_STANDARD 20)
    set(CMAKE_CUDA_STANDARD_REQUIRED ON)
    set(LOCKSTEP_HAS_CUDA ON)
  elseif(LOCKSTEP_CUDA STREQUAL "on")
    message(FATAL_ERROR "LOCKSTEP_CUDA=on, but no CUDA toolkit (12.4 or later, with nvcc) was found; "
                        "set CUDAToolkit_ROOT or use LOCKSTEP_CUDA=off")
  endif()
endif()
message(STATUS "GPU backend: ${LOCKSTEP_HAS_CUDA}")

# Hopper only: wgmma and TMA. Files named *_bf16_cuda.cu; all others are built for 8.0 and later too.
set(LOCKSTEP_CUDA_HOPPER -gencode=arch=compute_90a,code=sm_90a)
set(LOCKSTEP_CUDA_ANY -gencode=arch=compute_80,code=compute_80 -gencode=arch=compute_90a,code=sm_90a)
# FMT_USE_CONSTEXPR: fmt 9 does not trust nvcc with it and then does not compile.
set(LOCKSTEP_CUDA_FLAGS --fmad=false -DFMT_USE_CONSTEXPR=1 --expt-relaxed-constexpr -Xcompiler=-ffp-contract=off -Xcompiler=-Wall,-Wextra -Werror=all-warnings)

# lockstep_cuda_sources(TARGET FILES...): adds .cu files to a library.
function(lockstep_cuda_sources target)
  foreach(file ${ARGN})
    set(arch ${LOCKSTEP_CUDA_ANY})
    if(file MATCHES "_bf16_cuda(_test)?\\.cu$")
      set(arch ${LOCKSTEP_CUDA_HOPPER})
    endif()
    set_source_files_properties(${file} PROPERTIES COMPILE_OPTIONS "${LOCKSTEP_CUDA_FLAGS};${arch}")
  endforeach()
  target_sources(${target} PRIVATE ${ARGN})
endfunction()
