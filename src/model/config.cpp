// SPDX-License-Identifier: Apache-2.0
#include "model/config.h"

#include <cmath>
#include <cstdlib>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "core/log.h"
#include "core/nesting.h"
#include "core/suggest.h"
#include "numerics/constants.h"

namespace lockstep::model {
namespace {
using Json = nlohmann::ordered_json;

// Keys that are read, or that cannot change what the model computes in inference and training without
// dropout.
const std::set<std::string> kKnownKeys = {"architectures",
                                          "attention_dropout",
                                          "bos_token_id",
                                          "dtype",
                                          "torch_dtype",
                                          "eos_token_id",
                                          "pad_token_id",
                                          "hidden_act",
                                          "hidden_size",
                                          "initializer_range",
                                          "intermediate_size",
                                          "layer_types",
                                          "max_position_embeddings",
                                          "max_window_layers",
                                          "model_type",
                                          "num_attention_heads",
                                          "num_hidden_layers",
                                          "num_key_value_heads",
                                          "head_dim",
                                          "rms_norm_eps",
                                          "rope_theta",
                                          "rope_scaling",
                                          "rope_parameters",
                                          "partial_rotary_factor",
                                          "sliding_window",
                                          "use_sliding_window",
                                          "tie_word_embeddings",
                                          "transformers_version",
                                          "use_cache",
                                          "vocab_size",
                                          "_name_or_path",
                                          "use_mrope",
                                          "attention_bias",
                                          "mlp_bias",
                                          "quantization_config",
                                          "torchscript",
                                          "output_attentions",
                                          "output_hidden_states",
                                          "return_dict",
                                          "id2label",
                                          "label2id"};

Result<Json> parse_object(const std::string& text, const std::string& source) {
  if (nests_deeper(text)) {
    return invalid("{}: nests deeper than {}; it is not the config.json of a model", source, kMostNesting);
  }
  Json json = Json::parse(text, nullptr, false);
  if (!json.is_object()) return invalid("{}: is not a JSON object", source);
  return json;
}

struct Reader {
  const Json& json;
  const std::string& source;

  bool has(const char* key) const { return json.contains(key) && !json[key].is_null(); }

  Result<int64_t> integer(const char* key, int64_t low, int64_t high) const {
    if (!has(key))
      return invalid("{}: {} is missing; the folder is not a complete Hugging Face checkpoint", source, key);
    const Json& value = json[key];
    if (!value.is_number_integer())
      return invalid("{}: {} must be an integer, found {}", source, key, value.dump());
    const int64_t number = value.get<int64_t>();
    if (number < low || number > high) {
      return invalid("{}: {} = {} is outside {}..{}", source, key, number, low, high);
    }
    return number;
  }

  // A key that must hold the given value when present: the others are not computed here.
  Status only(const char* key, const Json& allowed) const {
    if (!has(key) || json[key] == allowed) return ok_status();
    return invalid("{}: {} = {} is not supported (only {})", source, key, json[key].dump(), allowed.dump());
  }
};

Status read_architecture(const Reader& in) {
  const std::string known = "Qwen2ForCausalLM";
  if (in.has("architectures")) {
    const Json& list = in.json["architectures"];
    if (!list.is_array() || list.size() != 1 || list[0] != known) {
      return invalid("{}: architectures = {} is not supported (this release runs {})", in.source, list.dump(),
                     known);
    }
  }
  if (!in.has("model_type") || in.json["model_type"] != "qwen2") {
    return invalid("{}: model_type = {} is not supported (this release runs qwen2)", in.source,
                   in.has("model_type") ? in.json["model_type"].dump() : "missing");
  }
  LOCKSTEP_RETURN_IF_ERROR(in.only("hidden_act", "silu"));
  LOCKSTEP_RETURN_IF_ERROR(in.only("use_sliding_window", false));
  LOCKSTEP_RETURN_IF_ERROR(in.only("use_mrope", false));
  LOCKSTEP_RETURN_IF_ERROR(in.only("mlp_bias", false));
  LOCKSTEP_RETURN_IF_ERROR(in.only("partial_rotary_factor", 1.0));
  LOCKSTEP_RETURN_IF_ERROR(in.only("attention_bias", true));
  if (in.has("attention_dropout") &&
      (!in.json["attention_dropout"].is_number() || in.json["attention_dropout"].get<double>() != 0)) {
    return invalid("{}: attention_dropout = {} is not supported (only 0)", in.source,
                   in.json["attention_dropout"].dump());
  }
  if (in.has("quantization_config")) {
    return invalid(
        "{}: quantization_config: quantised weights are not supported; use the unquantised checkpoint",
        in.source);
  }
  if (in.has("layer_types")) {
    for (const Json& type : in.json["layer_types"]) {
      if (type != "full_attention") {
        return invalid("{}: layer_types holds {}; only full_attention is supported", in.source, type.dump());
      }
    }
  }
  return ok_status();
}

// One object of rope settings (rope_scaling, or the newer rope_parameters). Adds a base to `bases`.
Status read_rope_object(const Reader& in, const char* key, std::vector<double>* bases) {
  if (!in.has(key)) return ok_status();
  const Json& rope = in.json[key];
  if (!rope.is_object()) return invalid("{}: {} must be an object, found {}", in.source, key, rope.dump());
  std::string type = "default";
  for (const char* name : {"type", "rope_type"}) {
    if (!rope.contains(name) || rope[name].is_null()) continue;
    if (!rope[name].is_string() || rope[name] != "default") {
      return invalid("{}: {}.{} = {} is not supported (only default)", in.source, key, name,
                     rope[name].dump());
    }
  }
  for (const auto& [name, value] : rope.items()) {
    if (name == "rope_theta" && value.is_number()) {
      bases->push_back(value.get<double>());
    } else if (name != "type" && name != "rope_type") {
      return invalid("{}: {}.{} is not known to this release; remove it or use a model without it", in.source,
                     key, name);
    }
  }
  return ok_status();
}

Status read_rope(const Reader& in, ModelConfig* config) {
  std::vector<double> bases;
  if (in.has("rope_theta")) {
    if (!in.json["rope_theta"].is_number()) return invalid("{}: rope_theta must be a number", in.source);
    bases.push_back(in.json["rope_theta"].get<double>());
  }
  LOCKSTEP_RETURN_IF_ERROR(read_rope_object(in, "rope_scaling", &bases));
  LOCKSTEP_RETURN_IF_ERROR(read_rope_object(in, "rope_parameters", &bases));
  if (bases.empty()) {
    log_warn("{}: rope_theta is missing; using Qwen2's default 10000", in.source);
    bases.push_back(10000);
  }
  for (const double base : bases) {
    if (base != bases[0])
      return invalid("{}: rope_theta is given twice with different values: {} and {}", in.source, bases[0],
                     base);
    if (!(base > 1 && base < 1e30)) return invalid("{}: rope_theta = {} is outside 1..1e30", in.source, base);
  }
  config->rope_base = bases[0];
  return ok_status();
}

Status read_end_tokens(const Reader& in, ModelConfig* config) {
  if (!in.has("eos_token_id")) return ok_status();
  const Json& eos = in.json["eos_token_id"];
  const Json list = eos.is_array() ? eos : Json::array({eos});
  for (const Json& id : list) {
    if (!id.is_number_integer() || id.get<int64_t>() < 0 || id.get<int64_t>() >= config->vocab) {
      return invalid("{}: eos_token_id {} is not an id below vocab_size {}", in.source, id.dump(),
                     config->vocab);
    }
    config->eos_ids.push_back(id.get<int32_t>());
  }
  return ok_status();
}

Status read_shape(const Reader& in, ModelConfig* config) {
  constexpr int64_t kLarge = 1 << 20;
  LOCKSTEP_ASSIGN_OR_RETURN(config->layers, in.integer("num_hidden_layers", 1, 4096));
  LOCKSTEP_ASSIGN_OR_RETURN(config->hidden, in.integer("hidden_size", 1, kLarge));
  LOCKSTEP_ASSIGN_OR_RETURN(config->intermediate, in.integer("intermediate_size", 1, kLarge));
  LOCKSTEP_ASSIGN_OR_RETURN(config->heads, in.integer("num_attention_heads", 1, 4096));
  LOCKSTEP_ASSIGN_OR_RETURN(config->vocab, in.integer("vocab_size", 2, numerics::kMaxVocab));
  LOCKSTEP_ASSIGN_OR_RETURN(config->max_positions, in.integer("max_position_embeddings", 1, kLarge));
  config->kv_heads = config->heads;
  if (in.has("num_key_value_heads")) {
    LOCKSTEP_ASSIGN_OR_RETURN(config->kv_heads, in.integer("num_key_value_heads", 1, config->heads));
  }
  if (config->heads % config->kv_heads != 0) {
    return invalid("{}: num_attention_heads {} is not a multiple of num_key_value_heads {}", in.source,
                   config->heads, config->kv_heads);
  }
  if (in.has("head_dim")) {
    LOCKSTEP_ASSIGN_OR_RETURN(config->head_size, in.integer("head_dim", 2, 256));
  } else if (config->hidden % config->heads != 0) {
    return invalid("{}: hidden_size {} is not a multiple of num_attention_heads {} and head_dim is not given",
                   in.source, config->hidden, config->heads);
  } else {
    config->head_size = config->hidden / config->heads;
  }
  if (config->head_size % 2 != 0 || config->head_size > 256) {
    return invalid("{}: head size {} is not supported (even, at most 256)", in.source, config->head_size);
  }
  return ok_status();
}

}  // namespace

Result<ModelConfig> parse_model_config(const std::string& json_text, const std::string& source) {
  LOCKSTEP_ASSIGN_OR_RETURN(const Json json, parse_object(json_text, source));
  const Reader in{json, source};
  ModelConfig config;
  LOCKSTEP_RETURN_IF_ERROR(read_architecture(in));
  LOCKSTEP_RETURN_IF_ERROR(read_shape(in, &config));
  LOCKSTEP_RETURN_IF_ERROR(read_rope(in, &config));
  LOCKSTEP_RETURN_IF_ERROR(read_end_tokens(in, &config));
  double eps = 1e-6;
  if (in.has("rms_norm_eps")) {
    if (!json["rms_norm_eps"].is_number()) return invalid("{}: rms_norm_eps must be a number", source);
    eps = json["rms_norm_eps"].get<double>();
    if (!(eps > 0 && eps < 1)) return invalid("{}: rms_norm_eps = {} is outside (0, 1)", source, eps);
  }
  config.rms_eps = static_cast<float>(eps);
  if (in.has("tie_word_embeddings")) {
    if (!json["tie_word_embeddings"].is_boolean())
      return invalid("{}: tie_word_embeddings must be true or false", source);
    config.tied = json["tie_word_embeddings"].get<bool>();
  }
  for (const auto& [key, value] : json.items()) {
    if (kKnownKeys.count(key) == 0) log_warn("{}: key {} is not known and has no effect", source, key);
  }
  return config;
}

std::string config_json_for(const std::string& json_text, const std::string& dtype) {
  Json json = Json::parse(json_text, nullptr, false);
  LOCKSTEP_CHECK(json.is_object());
  const char* key = json.contains("dtype") || !json.contains("torch_dtype") ? "dtype" : "torch_dtype";
  json[key] = dtype;
  return json.dump(2) + "\n";
}

Status check_stated_value(const std::string& json_text, const std::string& source, const std::string& option,
                          const std::string& key, const std::string& value) {
  LOCKSTEP_ASSIGN_OR_RETURN(const Json json, parse_object(json_text, source));
  Json found = json.contains(key) ? json[key] : Json();
  // A key that is not there has the value that parse_model_config takes for it.
  if (found.is_null() && key == "hidden_act") found = "silu";
  if (found.is_null() && key == "tie_word_embeddings") found = false;
  if (found.is_null() && key == "rope_theta" && json.contains("rope_parameters") &&
      json["rope_parameters"].is_object()) {
    found = json["rope_parameters"].value("rope_theta", Json());
  }
  const Json stated = Json::parse(value, nullptr, false);
  const bool same = !stated.is_discarded() && stated.is_number() && found.is_number()
                        ? stated.get<double>() == found.get<double>()
                        : found == (stated.is_discarded() ? Json(value) : stated);
  if (same) return ok_status();
  return invalid("{} {}: the checkpoint says {} = {} ({}); remove the option or use the model it describes",
                 option, value, key, found.dump(), source);
}

}  // namespace lockstep::model
