// SPDX-License-Identifier: Apache-2.0
#include "loop/model_io.h"

#include <nlohmann/json.hpp>

#include "model/config.h"
#include "model/load.h"

namespace lockstep::loop {
namespace {

constexpr const char* kFirstMoment = "exp_avg.";
constexpr const char* kSecondMoment = "exp_avg_sq.";

std::vector<checkpoint::TensorSpec> model_specs(const model::ParameterTable& table) {
  std::vector<checkpoint::TensorSpec> specs;
  for (const model::Parameter& p : table.by_name()) specs.push_back({p.name, DType::kF32, p.shape});
  return specs;
}

std::vector<checkpoint::TensorSpec> optimizer_specs(const model::ParameterTable& table) {
  std::vector<checkpoint::TensorSpec> specs;
  for (const char* prefix : {kFirstMoment, kSecondMoment}) {
    for (const model::Parameter& p : table.by_name())
      specs.push_back({prefix + p.name, DType::kF32, p.shape});
  }
  return specs;
}

// The arena slice of a tensor of optimizer.safetensors.
const float* moment(const model::ParameterTable& table, const trainer::OptimizerState& state,
                    const std::string& name) {
  const bool second = name.rfind(kSecondMoment, 0) == 0;
  const std::string parameter = name.substr(std::string(second ? kSecondMoment : kFirstMoment).size());
  return (second ? state.v : state.m).data() + table.find(parameter)->offset;
}

}  // namespace

Status write_checkpoint(checkpoint::CheckpointWriter writer, const CheckpointContents& contents) {
  const model::ParameterTable& table = contents.network->table();
  LOCKSTEP_ASSIGN_OR_RETURN(checkpoint::SafetensorsWriter * weights,
                            writer.add_safetensors(checkpoint::kModelFile, model_specs(table)));
  for (const checkpoint::TensorInfo& info : weights->tensors()) {
    LOCKSTEP_RETURN_IF_ERROR(
        weights->append(info.name, contents.network->at(table.find(info.name)->offset), info.size_bytes));
  }
  LOCKSTEP_RETURN_IF_ERROR(weights->close());
  if (contents.optimizer != nullptr) {
    LOCKSTEP_ASSIGN_OR_RETURN(checkpoint::SafetensorsWriter * moments,
                              writer.add_safetensors(checkpoint::kOptimizerFile, optimizer_specs(table)));
    for (const checkpoint::TensorInfo& info : moments->tensors()) {
      LOCKSTEP_RETURN_IF_ERROR(
          moments->append(info.name, moment(table, *contents.optimizer, info.name), info.size_bytes));
    }
    LOCKSTEP_RETURN_IF_ERROR(moments->close());
    LOCKSTEP_RETURN_IF_ERROR(writer.add_file(checkpoint::kStateFile, contents.state_json));
  }
  LOCKSTEP_RETURN_IF_ERROR(
      writer.add_file(checkpoint::kConfigFile, model::config_json_for_float32(contents.config_json)));
  if (!contents.side_folder.empty()) LOCKSTEP_RETURN_IF_ERROR(writer.copy_side_files(contents.side_folder));
  return writer.commit();
}

Result<int64_t> checkpoint_bytes(const model::ParameterTable& table, bool optimizer) {
  LOCKSTEP_ASSIGN_OR_RETURN(int64_t bytes, checkpoint::safetensors_file_bytes(model_specs(table)));
  if (optimizer) {
    LOCKSTEP_ASSIGN_OR_RETURN(const int64_t moments,
                              checkpoint::safetensors_file_bytes(optimizer_specs(table)));
    bytes += moments;
  }
  constexpr int64_t kSmallFiles = int64_t{16} << 20;  // tokenizer and the rest
  return bytes + kSmallFiles;
}

Status read_checkpoint(const std::string& folder, model::Network* network, trainer::OptimizerState* optimizer,
                       std::string* state_json) {
  LOCKSTEP_ASSIGN_OR_RETURN(const checkpoint::Checkpoint saved, checkpoint::open_checkpoint(folder));
  LOCKSTEP_RETURN_IF_ERROR(
      model::read_parameters(folder, network->table(), network->config().tied, network->arena()));
  for (const model::Parameter& p : network->table().by_name()) {
    for (const bool second : {false, true}) {
      const std::string name = (second ? kSecondMoment : kFirstMoment) + p.name;
      LOCKSTEP_ASSIGN_OR_RETURN(const checkpoint::TensorInfo* info, saved.optimizer.get(name));
      if (info->shape != p.shape || info->dtype != DType::kF32) {
        return invalid("{}: {} is {}, expected {}", saved.optimizer.path(), name,
                       checkpoint::type_text(info->dtype, info->shape),
                       checkpoint::type_text(DType::kF32, p.shape));
      }
      LOCKSTEP_RETURN_IF_ERROR(
          saved.optimizer.read(name, (second ? optimizer->v : optimizer->m).data() + p.offset));
    }
  }
  const auto state = nlohmann::json::parse(saved.state, nullptr, false);
  if (!state.is_object() || !state.contains("optimizer_step") ||
      !state["optimizer_step"].is_number_integer()) {
    return invalid("{}/{}: is not a state of this program", folder, checkpoint::kStateFile);
  }
  optimizer->step = state["optimizer_step"].get<int64_t>();
  *state_json = saved.state;
  return ok_status();
}

}  // namespace lockstep::loop
