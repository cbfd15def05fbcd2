// SPDX-License-Identifier: Apache-2.0
#include "model/gpu.h"

#include <algorithm>

#include "model/cuda/cuda_model.h"
#include "model/cuda/sizes.h"
#include "numerics/constants.h"
#include "ops/attention/attention.h"
#include "ops/vocabulary/vocabulary.h"

namespace lockstep::model {
namespace {

constexpr int64_t kFloat = sizeof(float);
constexpr int64_t kMiB = int64_t{1} << 20;

int64_t round_up(int64_t n, int64_t to) {
  return (n + to - 1) / to * to;
}

// Rows and columns of the matrices, the largest last.
std::vector<std::pair<int64_t, int64_t>> matrices(const ModelConfig& config) {
  std::vector<std::pair<int64_t, int64_t>> out = {{config.qkv_size(), config.hidden},
                                                  {config.hidden, config.q_size()},
                                                  {2 * config.intermediate, config.hidden},
                                                  {config.hidden, config.intermediate},
                                                  {config.vocab, config.hidden}};
  std::sort(out.begin(), out.end(),
            [](const auto& a, const auto& b) { return a.first * a.second < b.first * b.second; });
  return out;
}

// Chains of matrices that a leaf waits in. Within a micro-batch the head's loss rows are cut, too.
int64_t carry_bytes(const ModelConfig& config, const GpuWork& work) {
  const int64_t planes = work.leaf_rows > numerics::kGradientChunk ? 2 : 1;
  const int64_t head = config.vocab * config.hidden;
  if (!work.cut_leaves) return work.leaf_rows > kLogitsRows ? 2 * planes * head * kFloat : 0;
  int64_t layer = 0;
  for (const auto& [n, k] : matrices(config)) layer += n * k;
  layer -= head;
  const int64_t all = config.layers * layer + head;
  const auto largest = matrices(config).back();
  return planes * (all + largest.first * largest.second) * kFloat;
}

int64_t activation_bytes(const ModelConfig& config, int64_t rows, bool recompute, bool backward,
                         int64_t element) {
  const PassElements pass(config, rows);
  const HeadElements head(config, rows);
  const int64_t layers = recompute ? 1 : config.layers;
  int64_t bytes = layers * LayerElements(config, rows).bytes(element) +
                  ScratchElements(config, rows).bytes(element) + (config.layers + 1) * pass.hidden * element +
                  2 * head.hidden * element;
  if (backward)
    bytes +=
        (pass.gradients() + (recompute ? pass.hidden : 0) + 4 * head.hidden) * element + kFloat * head.rows;
  return bytes;
}

int64_t logits_bytes(const ModelConfig& config, int64_t rows, bool backward, int64_t element) {
  const HeadElements head(config, rows);
  int64_t bytes = head.logits * kFloat + head.block * (kFloat + static_cast<int64_t>(sizeof(double)) +
                                                       static_cast<int64_t>(sizeof(ops::VocabularySums)));
  if (backward) {
    bytes += head.block * static_cast<int64_t>(sizeof(ops::VocabularyGradientRow));
    if (element == 2) bytes += head.logits * element;
  }
  return bytes;
}

int64_t decode_bytes(const ModelConfig& config, const GpuWork& work, int64_t element) {
  const int64_t draws = padded_decode_rows(work.running);
  const int64_t rows = std::max(work.step_rows, draws);
  const DecodeElements step(config, rows, draws);
  return LayerElements(config, rows).bytes(element) + ScratchElements(config, rows).bytes(element) +
         (step.hidden + 2 * step.last) * element + step.logits * kFloat +
         draws * (kFloat + static_cast<int64_t>(sizeof(int32_t)));
}

// The largest of what operations take by turns.
int64_t scratch_bytes(Profile profile, const ModelConfig& config, const GpuWork& work) {
  constexpr int64_t kGrid = 264;        // blocks of a persistent grid, two for each of an H200's SMs
  constexpr int64_t kTile = 128 * 256;  // elements of a product's tile
  const int64_t drawn = std::max(std::min(work.rows, kLogitsRows), work.running);
  const int64_t tiles = (config.vocab + numerics::kVocabTile - 1) / numerics::kVocabTile;
  int64_t most = std::max(drawn * tiles * 20, kGrid * kTile * kFloat);
  const int64_t segments = (work.keys + numerics::kAttentionSegment - 1) / numerics::kAttentionSegment;
  most = std::max(most, std::max(work.step_rows, padded_decode_rows(work.running)) * config.heads * segments *
                            (config.head_size + 2) * kFloat);
  most = std::max(most, round_up(work.rows, 16) * config.heads * 12);
  for (const auto& [n, k] : matrices(config)) {  // products whose chunks go to blocks of their own
    for (const auto& [outputs, steps] : {std::pair{n, k}, std::pair{k, n}}) {
      const int64_t chunks = (steps + numerics::kForwardChunk - 1) / numerics::kForwardChunk;
      if (chunks < 2) continue;
      const int64_t rows = profile == Profile::kBf16 ? 256 : std::max(work.rows, work.step_rows);
      most = std::max(most, chunks * std::min(rows * outputs, kGrid * kTile / 2) * kFloat);
    }
  }
  return most;
}

std::string gib(int64_t bytes) {
  return fmt::format("{:.1f}", static_cast<double>(bytes) * 0x1p-30);
}

}  // namespace

Result<ChosenDevice> choose_device(Profile profile, const ModelConfig& config, const DeviceChoice& choice) {
  ChosenDevice out{choice, std::nullopt, ""};
  if (choice.device == "cpu") return out;
  Result<GpuInfo> gpu = cuda_device(profile, config, choice.index);
  if (!gpu.ok()) {
    if (choice.device != "auto")
      return invalid("--device cuda: {}; use --device cpu", gpu.status().message());
    if (choice.index > 0)
      return invalid("--gpu-index {}: {}; name another, or use --device cpu", choice.index,
                     gpu.status().message());
    out.choice.device = "cpu";
    out.reason = "computing on the CPU: " + gpu.status().message();
    return out;
  }
  out.gpu = std::move(gpu).value();
  if (choice.device == "auto")
    out.reason = fmt::format("computing on GPU {}, {}", out.gpu->index, out.gpu->name);
  out.choice.device = "cuda";
  return out;
}

std::vector<MemoryPart> gpu_memory(Profile profile, const ModelConfig& config, const GpuWork& work) {
  const bool bf16 = profile == Profile::kBf16;
  const int64_t element = bf16 ? 2 : 4;
  const ParameterTable table(config);
  const int64_t arena = table.arena_size();
  const int64_t page = config.layers * 2 * config.kv_heads * numerics::kKeyBlock * config.head_size * element;
  std::vector<MemoryPart> out;
  const auto add = [&out](std::string name, int64_t bytes, bool fixed = false) {
    if (bytes > 0) out.push_back({std::move(name), bytes, fixed});
  };
  add(bf16 ? "weights (bfloat16)" : "weights (float32)", arena * element, true);
  if (work.trains) {
    add("masters (float32)", bf16 ? arena * kFloat : 0, true);
    add("AdamW moments", 2 * arena * kFloat, true);
    add("gradient image (int64)", 2 * arena * kFloat, true);
    add("gradient chains of cut leaves", carry_bytes(config, work));
    add(fmt::format("activations of {} tokens", work.rows),
        activation_bytes(config, work.rows, work.recompute, true, element));
    add("logits of loss rows", logits_bytes(config, work.rows, true, element));
  }
  if (work.reference) {
    add("reference model", arena * element + work.positions * config.head_size * kFloat, true);
    add("its activations and logits", activation_bytes(config, work.rows, true, false, element) +
                                          logits_bytes(config, work.rows, false, element));
  }
  if (work.running > 0) {
    add(fmt::format("keys and values of {} samples x {} tokens", work.running, work.longest),
        work.kv_pages * page);
    add(fmt::format("decode steps of {} rows", work.step_rows), decode_bytes(config, work, element));
  }
  add("RoPE tables", work.positions * config.head_size * kFloat);
  const int64_t scratch = scratch_bytes(profile, config, work) * (work.reference ? 2 : 1);
  const int64_t parameters = static_cast<int64_t>(table.by_name().size());
  // Page numbers of a decode step; what sends them grows by doubling.
  const int64_t pages = (work.keys + numerics::kKeyBlock - 1) / numerics::kKeyBlock +
                        numerics::kAttentionSegment / numerics::kKeyBlock;
  const int64_t page_tables = work.running > 0 ? 2 * kFloat * work.step_rows * pages : 0;
  add("scratch memory and small tables",
      scratch + 128 * (std::max(work.rows, work.step_rows) + 16 * parameters) + page_tables + 4 * kMiB);
  return out;
}

int64_t memory_sum(const std::vector<MemoryPart>& parts) {
  int64_t sum = 0;
  for (const MemoryPart& part : parts) sum += part.bytes;
  return sum;
}

Status check_gpu_memory(const GpuInfo& gpu, const std::vector<MemoryPart>& parts, const std::string& remedy) {
  // Kernels that are loaded when first used, and what the driver rounds up.
  constexpr int64_t kDriver = int64_t{512} << 20;
  const int64_t sum = memory_sum(parts) + kDriver;
  if (sum <= gpu.free_bytes) return ok_status();
  int64_t fixed = 0;
  std::string terms;
  for (const MemoryPart& part : parts) {
    if (part.fixed) fixed += part.bytes;
    terms += fmt::format("{} {}, ", part.name, gib(part.bytes));
  }
  std::string text = fmt::format(
      "--device cuda: needs {} GiB of GPU memory at most ({}driver {}), GPU {} ({}) has {} GiB free of {}",
      gib(sum), terms, gib(kDriver), gpu.index, gpu.name, gib(gpu.free_bytes), gib(gpu.total_bytes));
  if (fixed + kDriver > gpu.total_bytes) {
    text += fmt::format(
        "; {} GiB of it depend on the model alone: it does not fit one GPU of this size; use a smaller model "
        "or "
        "--device cpu",
        gib(fixed));
  } else {
    text += "; " + remedy;
  }
  return {StatusCode::kInvalid, std::move(text)};
}

}  // namespace lockstep::model
