// SPDX-License-Identifier: Apache-2.0
#include "loop/init.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "core/file.h"
#include "core/log.h"
#include "loop/machine.h"
#include "loop/model_io.h"
#include "model/load.h"

namespace lockstep::loop {
namespace {

constexpr float kDefaultDeviation = 0.02F;

float deviation_of(const std::string& config_json) {
  const auto json = nlohmann::json::parse(config_json, nullptr, false);
  if (json.is_object() && json.contains("initializer_range") && json["initializer_range"].is_number()) {
    return json["initializer_range"].get<float>();
  }
  return kDefaultDeviation;
}

}  // namespace

Status run_init(const InitConfig& config) {
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string text, read_file(config.model_config));
  LOCKSTEP_ASSIGN_OR_RETURN(model::ModelConfig shape, model::parse_model_config(text, config.model_config));
  if (!config.tokenizer.empty() && !path_exists(join_path(config.tokenizer, "tokenizer.json"))) {
    return invalid("--tokenizer {}: holds no tokenizer.json", config.tokenizer);
  }
  LOCKSTEP_ASSIGN_OR_RETURN(const auto context, make_context({}));
  model::ParameterTable table(shape);
  model::Network network(std::move(shape), std::move(table));
  LOCKSTEP_ASSIGN_OR_RETURN(const int64_t bytes, checkpoint_bytes(network.table(), false));
  LOCKSTEP_RETURN_IF_ERROR(checkpoint::check_space(config.out, bytes));
  LOCKSTEP_ASSIGN_OR_RETURN(checkpoint::CheckpointWriter writer,
                            checkpoint::CheckpointWriter::begin_folder(config.out));
  model::initialise_parameters(*context, network.table(), config.seed, deviation_of(text), network.arena());
  CheckpointContents contents;
  contents.network = &network;
  contents.config_json = text;
  contents.side_folder = config.tokenizer;
  LOCKSTEP_RETURN_IF_ERROR(write_checkpoint(std::move(writer), contents));
  log_info("{}: {} parameters in {} tensors, seed {}", config.out, network.table().element_count(),
           network.table().by_name().size(), config.seed);
  return ok_status();
}

}  // namespace lockstep::loop
