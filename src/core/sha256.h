// SPDX-License-Identifier: Apache-2.0
// SHA-256 (FIPS 180-4) through OpenSSL.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "core/status.h"

namespace lockstep {

class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(const Sha256&) = delete;
  Sha256& operator=(const Sha256&) = delete;

  void update(const void* bytes, size_t size);
  void update(std::string_view text) { update(text.data(), text.size()); }
  // 64 lower-case hexadecimal digits. Call once; no update after it.
  std::string hex();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

std::string sha256_hex(std::string_view bytes);
// Reads the file in pieces. Errors: the file cannot be read (kInvalid, names it).
Result<std::string> sha256_file(const std::string& path);

}  // namespace lockstep
