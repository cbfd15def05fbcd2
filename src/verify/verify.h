// SPDX-License-Identifier: Apache-2.0
// Are two runs, checkpoints or tensor files the same, bit for bit? If not, where do they first differ?
#pragma once

#include <string>
#include <vector>

#include "core/status.h"

namespace lockstep::verify {

struct VerifyOptions {
  bool prefix = false;     // a run that ends earlier may be the same up to its end
  int64_t max_lines = 20;  // differing tensors listed
};

// code: kOk the same, kDifferent, or kNotComparable. lines: for people; the first one says it all.
struct Verdict {
  StatusCode code = StatusCode::kOk;
  std::vector<std::string> lines;
};

// Both of one kind: run folders, checkpoint (or Hugging Face) folders, ledger files, safetensors files.
// kInvalid when one cannot be read or the kinds are not the same.
Result<Verdict> verify_paths(const std::string& a, const std::string& b, const VerifyOptions& options = {});

}  // namespace lockstep::verify
