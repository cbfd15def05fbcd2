// SPDX-License-Identifier: Apache-2.0
// train, sft, eval, generate, init.
#include "cli/commands.h"
#include "cli/describe.h"
#include "cli/resolve.h"
#include "core/log.h"
#include "device/cpu/isa.h"
#include "loop/evaluate.h"
#include "loop/generate.h"
#include "loop/init.h"
#include "loop/memory.h"
#include "loop/sft.h"
#include "loop/train.h"
#include "tasks/registry.h"

namespace lockstep::cli {
namespace {

// What can be known before a model is read.
Status check_names(const Values& values, const std::string& rm_type) {
  if (const auto isa = cpu::isa_from_name(values.text("isa")); !isa.ok()) return isa.status();
  if (!rm_type.empty()) {
    if (const auto grader = tasks::make_grader(rm_type); !grader.ok()) return grader.status();
  }
  return check_model_facts(values);
}

}  // namespace

Status command_train(const Invocation& invocation) {
  std::vector<std::string> warnings;
  LOCKSTEP_ASSIGN_OR_RETURN(const loop::TrainConfig config, resolve_train(invocation.values, &warnings));
  LOCKSTEP_RETURN_IF_ERROR(check_names(invocation.values, config.rm_type));
  for (const std::string& warning : warnings) log_warning(warning);
  if (!invocation.values.flag("dry-run")) return loop::run_train(config);
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string memory, loop::train_memory_text(config));
  print(describe(config) + "\n" + memory);
  return ok_status();
}

Status command_sft(const Invocation& invocation) {
  LOCKSTEP_ASSIGN_OR_RETURN(const loop::SftConfig config, resolve_sft(invocation.values));
  LOCKSTEP_RETURN_IF_ERROR(check_names(invocation.values, ""));
  if (!invocation.values.flag("dry-run")) return loop::run_sft(config);
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string memory, loop::sft_memory_text(config));
  print(describe(config) + "\n" + memory);
  return ok_status();
}

Status command_eval(const Invocation& invocation) {
  LOCKSTEP_ASSIGN_OR_RETURN(const loop::EvalCommandConfig config, resolve_eval(invocation.values));
  LOCKSTEP_RETURN_IF_ERROR(check_names(invocation.values, config.rm_type));
  if (!invocation.values.flag("dry-run")) return loop::run_eval(config);
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string memory, loop::eval_memory_text(config));
  print(describe(config) + "\n" + memory);
  return ok_status();
}

Status command_generate(const Invocation& invocation) {
  LOCKSTEP_ASSIGN_OR_RETURN(const loop::GenerateConfig config, resolve_generate(invocation.values));
  LOCKSTEP_RETURN_IF_ERROR(check_names(invocation.values, ""));
  if (!invocation.values.flag("dry-run")) return loop::run_generate(config);
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string memory, loop::generate_memory_text(config));
  print(describe(config) + "\n" + memory);
  return ok_status();
}

Status command_init(const Invocation& invocation) {
  return loop::run_init(resolve_init(invocation.values));
}

}  // namespace lockstep::cli
