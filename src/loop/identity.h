// SPDX-License-Identifier: Apache-2.0
// What of a configuration makes a run this run and no other: the part "config" of the ledger's header.
//
// In it: every value that can change a bit of tokens, rewards, gradients or weights, or the lines of the
// ledger (evaluation). Not in it: free options (threads, batch sizes of the engine, micro-batches, saving),
// paths (what files hold is hashed elsewhere in the header), values that have no effect beside the others
// (the KL estimator without a KL term, evaluation settings without evaluation), and the number of steps: a
// run can be carried on with a larger one. Where the learning rate falls, the update at which it ends is in
// it; so a run of linear or cosine decay can be carried on only with --lr-decay-iters given from the start.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "loop/config.h"

namespace lockstep::loop {

// One JSON object written in the ledger's way (ledger/json_text.h), keys named as the options. end_ids: the
// model's own end tokens, which join the stop tokens asked for.
std::string identity_json(const TrainConfig& config, const std::vector<int32_t>& end_ids);
std::string identity_json(const SftConfig& config, const std::vector<int32_t>& end_ids);

}  // namespace lockstep::loop
