// SPDX-License-Identifier: Apache-2.0
#include "model/config.h"

#include <gtest/gtest.h>

#include "model/parameters.h"

namespace lockstep::model {
namespace {

// A Qwen2 config with `more` in front of the rest (keys given twice are not used here).
std::string config_text(const std::string& more = "") {
  return "{" + more +
         R"("architectures":["Qwen2ForCausalLM"],"model_type":"qwen2","hidden_act":"silu","hidden_size":48,)"
         R"("intermediate_size":80,"num_attention_heads":4,"num_key_value_heads":2,"num_hidden_layers":2,)"
         R"("vocab_size":96,"max_position_embeddings":128,"rms_norm_eps":1e-6,"tie_word_embeddings":true})";
}
Status refusal(const std::string& more) {
  return parse_model_config(config_text(more), "config.json").status();
}

TEST(ModelConfig, RopeBaseInEverySpelling) {  // CASES K01
  for (const char* more :
       {R"("rope_theta":1000000.0,)", R"("rope_parameters":{"rope_theta":1e6,"rope_type":"default"},)",
        R"("rope_theta":1000000,"rope_parameters":{"rope_theta":1e6},)",
        R"("rope_theta":1e6,"rope_scaling":null,)", R"("rope_theta":1e6,"rope_scaling":{},)"}) {
    const auto config = parse_model_config(config_text(more), "c");
    ASSERT_TRUE(config.ok()) << more << config.status().message();
    EXPECT_EQ(config.value().rope_base, 1e6);
  }
  EXPECT_EQ(parse_model_config(config_text(), "c").value().rope_base, 10000);
  EXPECT_NE(refusal(R"("rope_theta":10000,"rope_parameters":{"rope_theta":1e6},)").message().find("twice"),
            std::string::npos);
}

TEST(ModelConfig, RefusesWhatItDoesNotCompute) {  // K03, K04, K05, K09
  const std::pair<const char*, const char*> cases[] = {
      {R"("rope_scaling":{"type":"yarn","factor":4},)", "yarn"},
      {R"("rope_scaling":{"rope_type":"foo"},)", "foo"},
      {R"("rope_scaling":{"type":"default","attn_factor":2},)", "attn_factor"},
      {R"("use_sliding_window":true,"sliding_window":32,)", "use_sliding_window"},
      {R"("layer_types":["full_attention","sliding_attention"],)", "sliding_attention"},
      {R"("attention_dropout":0.1,)", "attention_dropout"},
      {R"("quantization_config":{"bits":4},)", "quantization_config"},
      {R"("mlp_bias":true,)", "mlp_bias"},
      {R"("partial_rotary_factor":0.5,)", "partial_rotary_factor"},
      {R"("eos_token_id":96,)", "eos_token_id"},
      {R"("head_dim":7,)", "head"},
  };
  for (const auto& [more, word] : cases) {
    const Status status = refusal(more);
    EXPECT_EQ(status.code(), StatusCode::kInvalid) << more;
    EXPECT_NE(status.message().find(word), std::string::npos) << status.message();
    EXPECT_NE(status.message().find("config.json"), std::string::npos) << status.message();
  }
  EXPECT_EQ(parse_model_config("[]", "c").status().code(), StatusCode::kInvalid);
  EXPECT_EQ(parse_model_config("{", "c").status().code(), StatusCode::kInvalid);
  EXPECT_TRUE(parse_model_config(config_text(R"("partial_rotary_factor":1,)"), "c").ok());
}

TEST(ModelConfig, DeepNestingIsRefusedBeforeItIsParsed) {
  const std::string deep(2000000, '[');
  const std::string text = config_text("\"extra\":" + deep + std::string(deep.size(), ']') + ",");
  EXPECT_NE(parse_model_config(text, "c").status().message().find("nests deeper"), std::string::npos);
  EXPECT_NE(
      check_stated_value(text, "c", "--num-layers", "num_hidden_layers", "2").message().find("nests deeper"),
      std::string::npos);
  EXPECT_TRUE(parse_model_config(config_text(R"("extra":[[["[[[\\\"[["]]],)"), "c").ok());
}

TEST(ModelConfig, WindowIsIgnoredWhenSwitchedOff) {
  EXPECT_TRUE(
      parse_model_config(config_text(R"("use_sliding_window":false,"sliding_window":4096,)"), "c").ok());
}

TEST(ModelConfig, HeadSizeFallsBackToHiddenOverHeads) {  // K07
  EXPECT_EQ(parse_model_config(config_text(R"("head_dim":null,)"), "c").value().head_size, 12);
  EXPECT_EQ(parse_model_config(config_text(R"("head_dim":32,)"), "c").value().head_size, 32);
}

TEST(ModelConfig, StatedValuesAreCompared) {
  EXPECT_TRUE(check_stated_value(config_text(), "c", "--num-layers", "num_hidden_layers", "2").ok());
  const Status status = check_stated_value(config_text(), "c", "--num-layers", "num_hidden_layers", "24");
  EXPECT_NE(status.message().find("--num-layers 24"), std::string::npos) << status.message();
}

TEST(ParameterTable, NamesShapesAndAdjacentSlices) {  // W12: 12 tensors a layer, 3 of them biases
  const ModelConfig config = parse_model_config(config_text(), "c").value();
  const ParameterTable table(config);
  EXPECT_EQ(table.by_name().size(), 2U + 2U * 12U);
  const Parameter& q = *table.find("model.layers.1.self_attn.q_proj.weight");
  const Parameter& k = *table.find("model.layers.1.self_attn.k_proj.weight");
  const Parameter& v = *table.find("model.layers.1.self_attn.v_proj.weight");
  EXPECT_EQ(q.offset, table.layer(1).qkv);
  EXPECT_EQ(k.offset, q.offset + q.size);
  EXPECT_EQ(v.offset, k.offset + k.size);
  EXPECT_EQ(k.shape, (std::vector<int64_t>{24, 48}));
  EXPECT_FALSE(table.find("model.norm.weight")->decays());
  EXPECT_EQ(table.find("lm_head.weight"), nullptr);
  EXPECT_EQ(table.head(), table.embedding());
  EXPECT_EQ(table.at(k.offset + 5).name, k.name);
}

}  // namespace
}  // namespace lockstep::model
