// SPDX-License-Identifier: Apache-2.0
// Unicode properties and normalisation, held at fixed versions of Unicode, so that the ids of a text do not
// depend on the age of the libraries of a machine.
#pragma once

#include <string>
#include <string_view>

namespace lockstep::data {

// Normalisation Form C of valid UTF-8, as of Unicode 9.0, which is what the reference library has: characters
// that are newer stay as they are, and nothing moves past them.
std::string to_nfc(std::string_view text);

// Characters newer than Unicode 14.0 have no properties here: they count as unassigned.
inline constexpr int kUnicodeVersion = 14;
bool is_in_unicode(char32_t code);
// `text` (valid UTF-8) with every newer character replaced by one that is unassigned for ever and as long in
// UTF-8; offsets stay the same.
std::string without_newer_characters(std::string_view text);

// \w and \s of the reference library's pattern engine for added tokens, and its digits.
bool is_word(char32_t code);
bool is_white(char32_t code);
bool is_numeric(char32_t code);

// Versions of PCRE2 and ICU and of their Unicode tables.
std::string text_library_versions();

}  // namespace lockstep::data
