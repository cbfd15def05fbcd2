# SPDX-License-Identifier: Apache-2.0
# The one file that holds compiler flags. None of them may let the compiler choose arithmetic:
# no contraction, no fast-math, no flush to zero.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

add_library(lockstep_flags INTERFACE)
target_include_directories(lockstep_flags INTERFACE ${CMAKE_SOURCE_DIR}/src)
target_compile_options(lockstep_flags INTERFACE
  -Wall -Wextra -Werror -Wundef -Wno-psabi
  -ffp-contract=off    # a fused multiply-add is written std::fma
  -fno-math-errno)     # sqrt is one instruction; changes no value
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # GCC 12 warns falsely inside std::string concatenation (GCC bug 105651).
  target_compile_options(lockstep_flags INTERFACE -Wno-restrict)
endif()
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  # The floor is x86-64-v3 (AVX2, FMA; checked at start); wider paths are files of their own.
  target_compile_options(lockstep_flags INTERFACE -march=x86-64-v3)
endif()
set(LOCKSTEP_SANITIZE "" CACHE STRING "address,undefined | thread | empty")
if(LOCKSTEP_SANITIZE)
  target_compile_options(lockstep_flags INTERFACE -fsanitize=${LOCKSTEP_SANITIZE} -fno-sanitize-recover=all -g)
  target_link_options(lockstep_flags INTERFACE -fsanitize=${LOCKSTEP_SANITIZE})
endif()

# *_avx512.cpp files hold the AVX-512 bodies; chosen at run time.
function(lockstep_isa_flags)
  foreach(file ${ARGN})
    if(file MATCHES "_avx512\\.cpp$")
      set_source_files_properties(${file} PROPERTIES COMPILE_OPTIONS
        "-mavx512f;-mavx512bw;-mavx512vl;-mavx512dq;-mprefer-vector-width=512")
    endif()
  endforeach()
endfunction()

# lockstep_library(NAME DIR [DEPS...]): every .cpp of DIR except tests, benches and fuzzers, and a test
# program of its *_test.cpp files. One library a folder of src/.
function(lockstep_library name dir)
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/${dir}/*.cpp)
  if(dir STREQUAL "tasks")  # a folder a task, one library
    file(GLOB nested CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/${dir}/*/*.cpp)
    list(APPEND sources ${nested})
  endif()
  set(tests ${sources})
  set(benches ${sources})
  set(fuzzers ${sources})
  list(FILTER tests INCLUDE REGEX "_test\\.cpp$")
  list(FILTER benches INCLUDE REGEX "_bench\\.cpp$")
  list(FILTER fuzzers INCLUDE REGEX "_fuzz\\.cpp$")
  list(FILTER sources EXCLUDE REGEX "(_(test|bench|fuzz)|/main)\\.cpp$")
  lockstep_isa_flags(${sources})
  if(sources)
    add_library(${name} STATIC ${sources})
    target_link_libraries(${name} PUBLIC lockstep_flags ${ARGN})
    set(link ${name})
  else()
    add_library(${name} INTERFACE)
    target_link_libraries(${name} INTERFACE lockstep_flags ${ARGN})
  endif()
  if(tests AND LOCKSTEP_TESTS)
    add_executable(${name}_test ${tests})
    target_link_libraries(${name}_test PRIVATE ${name} lockstep_test_support GTest::gtest GTest::gtest_main)
    add_test(NAME ${name} COMMAND ${name}_test)
    set_tests_properties(${name} PROPERTIES LABELS unit TIMEOUT 900)
  endif()
  foreach(file ${benches})
    get_filename_component(stem ${file} NAME_WE)
    if(LOCKSTEP_BENCH)
      add_executable(${stem} ${file})
      target_link_libraries(${stem} PRIVATE ${name} benchmark::benchmark)
    endif()
  endforeach()
  foreach(file ${fuzzers})
    get_filename_component(stem ${file} NAME_WE)
    if(LOCKSTEP_FUZZ)
      add_executable(${stem} ${file})
      target_link_libraries(${stem} PRIVATE ${name})
      target_link_options(${stem} PRIVATE -fsanitize=fuzzer)
    endif()
  endforeach()
endfunction()
