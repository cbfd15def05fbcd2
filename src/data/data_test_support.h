// SPDX-License-Identifier: Apache-2.0
// For the tests of this folder.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <string>

#include "core/file.h"
#include "data/tokenizer.h"
#include "same_bits.h"

namespace lockstep::data {

// Read once for all tests.
inline const Tokenizer& qwen() {
  static const Tokenizer tokenizer = Tokenizer::load(testing::large_test_data("qwen2.5-tokenizer")).value();
  return tokenizer;
}

// A file of this process; two runs of the tests at once do not meet.
inline std::string write_temporary(const std::string& name, const std::string& text) {
  const std::string path = ::testing::TempDir() + "lockstep_" + std::to_string(getpid()) + "_" + name;
  EXPECT_TRUE(write_file_atomic(path, text).ok());
  return path;
}

}  // namespace lockstep::data
