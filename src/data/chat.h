// SPDX-License-Identifier: Apache-2.0
// Conversations to token ids.
#pragma once

#include <cstdint>
#include <vector>

#include "core/status.h"
#include "data/chat_template.h"
#include "data/tokenizer.h"
#include "data/value.h"

namespace lockstep::data {

// What the texts of added tokens do inside the content of messages.
enum class ControlTokens {
  kCompatible,  // they become those tokens, as in transformers: a user can write <|im_end|>
  kSafe,  // they stay ordinary text, each spelled on its own. In turns of the assistant only special tokens
          // are meant: <think> or <tool_call> there are the model's own
};

// Renders and encodes. Nothing is added beyond what the template writes (no second <|begin_of_text|>).
// Errors: the template's, a byte no token spells, a message that is no map, in kSafe an added token of one
// character (it cannot be kept apart).
Result<std::vector<int32_t>> encode_chat(const Tokenizer& tokenizer, const ChatTemplate& chat_template,
                                         const Value& messages, bool add_generation_prompt,
                                         ControlTokens mode = ControlTokens::kCompatible,
                                         const ValueMap& extra = {});

// Where a conversation that ends in an assistant's turn is cut for training: ids of all of it, and how many
// of them are the prompt (the conversation without the last turn, with the generation prompt). An error when
// the prompt's ids are not the beginning of the whole: the template rewrites history.
struct EncodedConversation {
  std::vector<int32_t> ids;
  int64_t prompt_tokens = 0;
};
Result<EncodedConversation> encode_conversation(const Tokenizer& tokenizer, const ChatTemplate& chat_template,
                                                const Value& messages,
                                                ControlTokens mode = ControlTokens::kCompatible,
                                                const ValueMap& extra = {});

}  // namespace lockstep::data
