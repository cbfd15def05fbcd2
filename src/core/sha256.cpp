// SPDX-License-Identifier: Apache-2.0
#include "core/sha256.h"

#include <openssl/evp.h>

#include <cstdio>
#include <cstring>
#include <vector>

#include "core/bytes.h"
#include "core/check.h"

namespace lockstep {

struct Sha256::Impl {
  EVP_MD_CTX* context = nullptr;
};

Sha256::Sha256() : impl_(std::make_unique<Impl>()) {
  impl_->context = EVP_MD_CTX_new();
  LOCKSTEP_CHECK(impl_->context != nullptr && EVP_DigestInit_ex(impl_->context, EVP_sha256(), nullptr) == 1);
}

Sha256::~Sha256() {
  EVP_MD_CTX_free(impl_->context);
}

void Sha256::update(const void* bytes, size_t size) {
  LOCKSTEP_CHECK(EVP_DigestUpdate(impl_->context, bytes, size) == 1);
}

std::string Sha256::hex() {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  LOCKSTEP_CHECK(EVP_DigestFinal_ex(impl_->context, digest, &size) == 1 && size == 32);
  return to_hex(digest, size);
}

std::string sha256_hex(std::string_view bytes) {
  Sha256 sha;
  sha.update(bytes);
  return sha.hex();
}

Result<std::string> sha256_file(const std::string& path) {
  std::FILE* file = std::fopen(path.c_str(), "rb");
  if (file == nullptr) return invalid("{}: cannot open: {}", path, std::strerror(errno));
  Sha256 sha;
  std::vector<char> piece(1 << 20);
  size_t n = 0;
  while ((n = std::fread(piece.data(), 1, piece.size(), file)) > 0) sha.update(piece.data(), n);
  const bool failed = std::ferror(file) != 0;
  std::fclose(file);
  if (failed) return invalid("{}: read error", path);
  return sha.hex();
}

}  // namespace lockstep
