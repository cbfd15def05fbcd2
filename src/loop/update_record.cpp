// SPDX-License-Identifier: Apache-2.0
#include "loop/update_record.h"

#include "model/digests.h"

namespace lockstep::loop {
namespace {

ledger::LedgerRecord tensor_record(int64_t step, const char* phase, model::NamedDigests digests) {
  ledger::LedgerRecord out = step_record(step, phase, model::combine_digests(digests));
  out.tensors = std::move(digests);
  return out;
}

}  // namespace

ledger::LedgerRecord step_record(int64_t step, const char* phase, const numerics::Digest128& digest) {
  ledger::LedgerRecord out;
  out.step = step;
  out.phase = phase;
  out.digest = digest;
  return out;
}

Result<trainer::UpdateMetrics> record_update(const UpdateTarget& target,
                                             const trainer::UpdateRequest& request, int64_t step) {
  const cpu::Context& context = *target.context;
  LOCKSTEP_ASSIGN_OR_RETURN(trainer::UpdateMetrics metrics,
                            target.trainer->compute_gradient(context, request));
  ledger::LedgerRecord gradients =
      tensor_record(step, "gradients", target.trainer->learner().gradient_digests(context));
  LOCKSTEP_RETURN_IF_ERROR(target.trainer->apply(context, request, &metrics));
  gradients.add("update", request.update)
      .add("grad_norm", metrics.grad_norm)
      .add("lr", metrics.lr)
      .add("loss", metrics.loss);
  target.folder->append(gradients);
  target.folder->append(tensor_record(step, "weights", target.model->weight_digests(context)));
  model::NamedDigests moments = target.trainer->learner().state_digests(context);
  target.folder->append(tensor_record(step, "optimizer", std::move(moments)));
  return metrics;
}

}  // namespace lockstep::loop
