// SPDX-License-Identifier: Apache-2.0
// What a checkpoint says of its run (state.json), held against the run's record: ledger, metrics, samples and
// the tensors themselves. Nothing here writes.
#pragma once

#include <cstdint>
#include <string>

#include "core/status.h"
#include "device/cpu/context.h"
#include "ledger/ledger.h"
#include "loop/model_io.h"

namespace lockstep::loop {

inline constexpr const char* kMetricsFile = "metrics.jsonl";
inline constexpr const char* kEnvironmentFile = "environment.jsonl";
inline constexpr const char* kSamplesFolder = "samples";

struct SavedState {
  int64_t step = 0;
  int64_t optimizer_step = 0;
  int64_t ledger_records = 0;
  int64_t metrics_lines = 0;
  std::string identity;
  std::string ledger_sha256;
};
// Of the checkpoint `folder`. kInvalid also when its step is not the one in the folder's name.
Result<SavedState> read_state(const std::string& folder);

// The record of a run folder as far as a checkpoint goes.
struct History {
  std::string run_dir;
  ledger::Ledger ledger;
  std::string ledger_text;  // the first ledger_records records
};
// Reads the ledger of run_dir and checks that `checkpoint` was saved behind it: number of records, hash of
// the last one, step, updates; and that the metrics reach as far. Missing samples are warned about.
Result<History> read_history(const std::string& run_dir, const std::string& checkpoint,
                             const SavedState& state);
// The loaded tensors against the digests that the ledger holds for the checkpoint's step; names the first
// that differs.
Status check_loaded(const cpu::Context& context, const History& history, const std::string& checkpoint,
                    const SavedState& state, const model::Model& model,
                    const trainer::OptimizerState& optimizer);

// The step in "rollout_0000019.jsonl" or "eval_test_0000019.jsonl"; -1 for other names.
int64_t sample_step(const std::string& name);
// iter_NNNNNNN-like number in a file name: "rollout_0000019.jsonl".
std::string sample_file_name(const std::string& prefix, int64_t step);

// The first `lines` whole lines of a text (fewer when there are fewer).
std::string_view first_lines(std::string_view text, int64_t lines);

}  // namespace lockstep::loop
