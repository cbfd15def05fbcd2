// SPDX-License-Identifier: Apache-2.0
#include "loop/model_io.h"

#include <nlohmann/json.hpp>

#include "model/config.h"
#include "model/load.h"

namespace lockstep::loop {
namespace {

constexpr const char* kFirstMoment = "exp_avg.";
constexpr const char* kSecondMoment = "exp_avg_sq.";
constexpr const char* kMaster = "master.";

std::vector<checkpoint::TensorSpec> model_specs(const model::Model& model) {
  std::vector<checkpoint::TensorSpec> specs;
  for (const model::Parameter& p : model.table().by_name())
    specs.push_back({p.name, model.weight_type(), p.shape});
  return specs;
}

// Kinds of tensors of optimizer.safetensors. The masters of profile fp32 are the weights.
std::vector<std::string> optimizer_kinds(const model::Model& model) {
  std::vector<std::string> kinds = {kFirstMoment, kSecondMoment};
  if (model.profile() == model::Profile::kBf16) kinds.push_back(kMaster);
  return kinds;
}

std::vector<checkpoint::TensorSpec> optimizer_specs(const model::Model& model) {
  std::vector<checkpoint::TensorSpec> specs;
  for (const std::string& kind : optimizer_kinds(model)) {
    for (const model::Parameter& p : model.table().by_name())
      specs.push_back({kind + p.name, DType::kF32, p.shape});
  }
  return specs;
}

// The arena of a kind.
const float* arena_of(const model::Model& model, const trainer::OptimizerState& state,
                      const std::string& kind) {
  if (kind == kMaster) return model.masters();
  return kind == kSecondMoment ? state.v.data() : state.m.data();
}
float* arena_of(model::Model* model, trainer::OptimizerState* state, const std::string& kind) {
  if (kind == kMaster) return model->masters();
  return kind == kSecondMoment ? state->v.data() : state->m.data();
}

// The arena slice of a tensor of optimizer.safetensors.
const float* optimizer_tensor(const model::Model& model, const trainer::OptimizerState& state,
                              const std::string& name) {
  for (const std::string& kind : optimizer_kinds(model)) {
    if (name.rfind(kind, 0) == 0)
      return arena_of(model, state, kind) + model.table().find(name.substr(kind.size()))->offset;
  }
  check_failed(__FILE__, __LINE__, "the name has a known kind", name);
}

std::string config_json_of(const std::string& text, const model::Model& model) {
  return model::config_json_for(text, model.weight_type() == DType::kBF16 ? "bfloat16" : "float32");
}

}  // namespace

Result<std::string> saved_config_json(const std::string& base_folder, const model::Model& model) {
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string text, checkpoint::read_config_json(base_folder));
  return config_json_of(text, model);
}

Status write_checkpoint(checkpoint::CheckpointWriter writer, const CheckpointContents& contents) {
  const model::Model& model = *contents.model;
  LOCKSTEP_ASSIGN_OR_RETURN(checkpoint::SafetensorsWriter * weights,
                            writer.add_safetensors(checkpoint::kModelFile, model_specs(model)));
  for (const checkpoint::TensorInfo& info : weights->tensors()) {
    LOCKSTEP_RETURN_IF_ERROR(
        weights->append(info.name, model.weights(model.table().find(info.name)->offset), info.size_bytes));
  }
  LOCKSTEP_RETURN_IF_ERROR(weights->close());
  if (contents.optimizer != nullptr) {
    LOCKSTEP_ASSIGN_OR_RETURN(checkpoint::SafetensorsWriter * moments,
                              writer.add_safetensors(checkpoint::kOptimizerFile, optimizer_specs(model)));
    for (const checkpoint::TensorInfo& info : moments->tensors()) {
      LOCKSTEP_RETURN_IF_ERROR(moments->append(
          info.name, optimizer_tensor(model, *contents.optimizer, info.name), info.size_bytes));
    }
    LOCKSTEP_RETURN_IF_ERROR(moments->close());
    LOCKSTEP_RETURN_IF_ERROR(writer.add_file(checkpoint::kStateFile, contents.state_json));
  }
  LOCKSTEP_RETURN_IF_ERROR(
      writer.add_file(checkpoint::kConfigFile, config_json_of(contents.config_json, model)));
  if (!contents.side_folder.empty()) LOCKSTEP_RETURN_IF_ERROR(writer.copy_side_files(contents.side_folder));
  return writer.commit();
}

Result<int64_t> checkpoint_bytes(const model::Model& model, bool optimizer) {
  LOCKSTEP_ASSIGN_OR_RETURN(int64_t bytes, checkpoint::safetensors_file_bytes(model_specs(model)));
  if (optimizer) {
    LOCKSTEP_ASSIGN_OR_RETURN(const int64_t moments,
                              checkpoint::safetensors_file_bytes(optimizer_specs(model)));
    bytes += moments;
  }
  constexpr int64_t kSmallFiles = int64_t{16} << 20;  // tokenizer and the rest
  return bytes + kSmallFiles;
}

Status read_checkpoint(const std::string& folder, model::Model* model, trainer::OptimizerState* optimizer,
                       std::string* state_json) {
  LOCKSTEP_ASSIGN_OR_RETURN(const checkpoint::Checkpoint saved, checkpoint::open_checkpoint(folder));
  const model::ParameterTable& table = model->table();
  if (model->profile() == model::Profile::kFp32)
    LOCKSTEP_RETURN_IF_ERROR(model::read_parameters(folder, table, model->config().tied, model->masters()));
  for (const std::string& kind : optimizer_kinds(*model)) {
    for (const model::Parameter& p : table.by_name()) {
      const std::string name = kind + p.name;
      LOCKSTEP_ASSIGN_OR_RETURN(const checkpoint::TensorInfo* info, saved.optimizer.get(name));
      if (info->shape != p.shape || info->dtype != DType::kF32) {
        return invalid("{}: {} is {}, expected {}", saved.optimizer.path(), name,
                       checkpoint::type_text(info->dtype, info->shape),
                       checkpoint::type_text(DType::kF32, p.shape));
      }
      LOCKSTEP_RETURN_IF_ERROR(saved.optimizer.read(name, arena_of(model, optimizer, kind) + p.offset));
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
