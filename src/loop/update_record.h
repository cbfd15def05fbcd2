// SPDX-License-Identifier: Apache-2.0
// One update with its ledger lines: gradients, weights, optimizer.
#pragma once

#include "core/status.h"
#include "ledger/ledger.h"
#include "loop/run_folder.h"
#include "trainer/trainer.h"

namespace lockstep::loop {

ledger::LedgerRecord step_record(int64_t step, const char* phase, const numerics::Digest128& digest);

struct UpdateTarget {
  const cpu::Context* context = nullptr;
  const model::Model* model = nullptr;
  const trainer::OptimizerState* state = nullptr;
  trainer::Trainer* trainer = nullptr;
  RunFolder* folder = nullptr;
};
// Computes, records and applies the update of `request` as part of `step`.
Result<trainer::UpdateMetrics> record_update(const UpdateTarget& target,
                                             const trainer::UpdateRequest& request, int64_t step);

}  // namespace lockstep::loop
