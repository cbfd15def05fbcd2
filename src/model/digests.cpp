// SPDX-License-Identifier: Apache-2.0
#include "model/digests.h"

#include <algorithm>

namespace lockstep::model {
namespace {

constexpr int64_t kShardBlocks = 256;  // 1 MiB a task

numerics::Digest128 digest_parallel(const cpu::Context& context, const void* data, int64_t size_bytes) {
  const auto* bytes = static_cast<const unsigned char*>(data);
  const int64_t blocks = (size_bytes + numerics::kDigestBlockBytes - 1) / numerics::kDigestBlockBytes;
  const int64_t shards = (blocks + kShardBlocks - 1) / kShardBlocks;
  std::vector<numerics::DigestSum> sums(static_cast<size_t>(std::max<int64_t>(shards, 1)));
  context.parallel_for(shards, [&](int64_t shard) {
    const int64_t end = std::min(blocks, (shard + 1) * kShardBlocks);
    for (int64_t b = shard * kShardBlocks; b < end; ++b) {
      const int64_t offset = b * numerics::kDigestBlockBytes;
      sums[static_cast<size_t>(shard)].add_block(
          static_cast<uint64_t>(b), bytes + offset,
          static_cast<size_t>(std::min(numerics::kDigestBlockBytes, size_bytes - offset)));
    }
  });
  for (size_t i = 1; i < sums.size(); ++i) sums[0].merge(sums[i]);
  return sums[0].finish(static_cast<uint64_t>(size_bytes));
}

template <typename T>
NamedDigests digest_arena(const cpu::Context& context, const ParameterTable& table, const T* arena) {
  NamedDigests out;
  for (const Parameter& p : table.by_name()) {
    out.emplace_back(p.name,
                     digest_parallel(context, arena + p.offset, p.size * static_cast<int64_t>(sizeof(T))));
  }
  return out;
}

}  // namespace

NamedDigests digest_parameters(const cpu::Context& context, const ParameterTable& table, const float* arena) {
  return digest_arena(context, table, arena);
}

NamedDigests digest_parameters(const cpu::Context& context, const ParameterTable& table,
                               const numerics::Bf16* arena) {
  return digest_arena(context, table, arena);
}

NamedDigests digest_gradient(const cpu::Context& context, const ParameterTable& table, const int64_t* image) {
  return digest_arena(context, table, image);
}

void append_digests(const char* prefix, const NamedDigests& digests, NamedDigests* out) {
  for (const auto& [name, digest] : digests) out->emplace_back(prefix + name, digest);
}

numerics::Digest128 combine_digests(const NamedDigests& digests) {
  std::string text;
  for (const auto& [name, digest] : digests) text += name + "=" + digest.hex() + "\n";
  return numerics::digest_bytes(text.data(), text.size());
}

}  // namespace lockstep::model
