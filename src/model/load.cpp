// SPDX-License-Identifier: Apache-2.0
#include "model/load.h"

#include <algorithm>
#include <vector>

#include "checkpoint/hf_folder.h"
#include "core/file.h"
#include "core/suggest.h"
#include "numerics/philox.h"

namespace lockstep::model {
namespace {

constexpr const char* kHead = "lm_head.weight";
constexpr const char* kEmbedding = "model.embed_tokens.weight";

bool is_unused_buffer(const std::string& name) {  // written by old versions of transformers; not a parameter
  const std::string suffix = ".rotary_emb.inv_freq";
  return name.size() > suffix.size() && name.compare(name.size() - suffix.size(), suffix.size(), suffix) == 0;
}

std::string shape_text(const std::vector<int64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ","));
}

// A head beside a tied embedding must be the same numbers.
Status check_tied_head(const checkpoint::HfWeights& weights, const ParameterTable& table,
                       const float* arena) {
  const checkpoint::TensorInfo* head = weights.find(kHead);
  const Parameter& embedding = *table.find(kEmbedding);
  if (head == nullptr) return ok_status();
  if (head->shape != embedding.shape) {
    return invalid("{}: {} has shape {}, but tie_word_embeddings is true and the embedding has {}",
                   weights.folder(), kHead, shape_text(head->shape), shape_text(embedding.shape));
  }
  const int64_t columns = embedding.shape[1];
  constexpr int64_t kRows = 1024;
  Buffer<float> piece(kRows * columns);
  for (int64_t row = 0; row < embedding.shape[0]; row += kRows) {
    const int64_t end = std::min(embedding.shape[0], row + kRows);
    LOCKSTEP_RETURN_IF_ERROR(weights.read_f32(kHead, row, end, piece.data()));
    if (!std::equal(piece.data(), piece.data() + (end - row) * columns,
                    arena + embedding.offset + row * columns)) {
      return invalid(
          "{}: tie_word_embeddings is true but {} differs from {}; set tie_word_embeddings to false in "
          "config.json",
          weights.folder(), kHead, kEmbedding);
    }
  }
  return ok_status();
}

}  // namespace

Status read_parameters(const std::string& folder, const ParameterTable& table, bool tied, float* arena) {
  LOCKSTEP_ASSIGN_OR_RETURN(const checkpoint::HfWeights weights, checkpoint::HfWeights::open(folder));
  for (const std::string& name : weights.names()) {
    if (table.find(name) != nullptr || is_unused_buffer(name) || (tied && name == kHead)) continue;
    std::vector<std::string> known;
    for (const Parameter& p : table.by_name()) known.push_back(p.name);
    const std::string near = nearest_name(name, known);
    return invalid("{}: tensor {} is not explained by config.json{}", folder, name,
                   near.empty() ? "" : " (nearest known: " + near + ")");
  }
  for (const Parameter& p : table.by_name()) {
    const checkpoint::TensorInfo* info = weights.find(p.name);
    if (info == nullptr) return invalid("{}: tensor {} {} is missing", folder, p.name, shape_text(p.shape));
    if (info->shape != p.shape) {
      return invalid("{}: tensor {}: config.json asks for shape {}, the file has {}", folder, p.name,
                     shape_text(p.shape), shape_text(info->shape));
    }
    LOCKSTEP_RETURN_IF_ERROR(weights.read_f32(p.name, arena + p.offset));
  }
  return tied ? check_tied_head(weights, table, arena) : ok_status();
}

Result<std::unique_ptr<Model>> load_model(const std::string& folder, Profile profile,
                                          const DeviceChoice& choice) {
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string text, checkpoint::read_config_json(folder));
  LOCKSTEP_ASSIGN_OR_RETURN(const ModelConfig config,
                            parse_model_config(text, join_path(folder, checkpoint::kConfigFile)));
  LOCKSTEP_ASSIGN_OR_RETURN(std::unique_ptr<Model> model, make_model(profile, config, choice));
  LOCKSTEP_RETURN_IF_ERROR(read_parameters(folder, model->table(), model->config().tied, model->masters()));
  return model;
}

void initialise_parameters(const cpu::Context& context, const ParameterTable& table, uint64_t seed,
                           float deviation, float* arena) {
  const auto& parameters = table.by_name();
  for (size_t index = 0; index < parameters.size(); ++index) {
    const Parameter& p = parameters[index];
    if (!p.decays()) {
      const bool gain = p.name.find("norm") != std::string::npos;
      std::fill(arena + p.offset, arena + p.offset + p.size, gain ? 1.0F : 0.0F);
      continue;
    }
    // Twelve 16-bit uniforms a value (Irwin-Hall): variance 1, exact in binary32 up to the last product.
    context.parallel_ranges(p.size, int64_t{1} << 16, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        int64_t sum = 0;
        for (uint32_t word = 0; word < 3; ++word) {
          uint64_t bits = numerics::draw(seed, numerics::Purpose::kInit, static_cast<uint64_t>(i),
                                         static_cast<uint32_t>(index), word);
          for (int k = 0; k < 4; ++k, bits >>= 16) sum += static_cast<int64_t>(bits & 0xFFFF);
        }
        arena[p.offset + i] = (static_cast<float>(2 * sum - 12 * 65535) * 0x1p-17F) * deviation;
      }
    });
  }
}

}  // namespace lockstep::model
