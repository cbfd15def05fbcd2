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
  LOCKSTEP_RETURN_IF_ERROR(check_output_folder(config.out).with_context("--save"));
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string text, read_file(config.model_config));
  LOCKSTEP_ASSIGN_OR_RETURN(model::ModelConfig shape, model::parse_model_config(text, config.model_config));
  if (!config.tokenizer.empty() && !path_exists(join_path(config.tokenizer, "tokenizer.json"))) {
    return invalid("--tokenizer {}: holds no tokenizer.json", config.tokenizer);
  }
  LOCKSTEP_ASSIGN_OR_RETURN(const auto context, make_context({}));
  const std::unique_ptr<model::Model> model = model::make_model(model::Profile::kFp32, shape);
  LOCKSTEP_ASSIGN_OR_RETURN(const int64_t bytes, checkpoint_bytes(*model, false));
  LOCKSTEP_RETURN_IF_ERROR(checkpoint::check_space(config.out, bytes));
  LOCKSTEP_ASSIGN_OR_RETURN(checkpoint::CheckpointWriter writer,
                            checkpoint::CheckpointWriter::begin_folder(config.out));
  model::initialise_parameters(*context, model->table(), config.seed, deviation_of(text), model->masters());
  CheckpointContents contents;
  contents.model = model.get();
  contents.config_json = text;
  contents.side_folder = config.tokenizer;
  LOCKSTEP_RETURN_IF_ERROR(write_checkpoint(std::move(writer), contents));
  log_info("{}: {} parameters in {} tensors, seed {}", config.out, model->table().element_count(),
           model->table().by_name().size(), config.seed);
  return ok_status();
}

}  // namespace lockstep::loop
