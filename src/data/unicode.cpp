// SPDX-License-Identifier: Apache-2.0
#include "data/unicode.h"

#include <unicode/normalizer2.h>
#include <unicode/uchar.h>
#include <unicode/uniset.h>
#include <unicode/uversion.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "core/check.h"
#include "data/utf8.h"

namespace lockstep::data {
namespace {

const icu::Normalizer2& pinned_nfc() {
  static const icu::FilteredNormalizer2 instance = [] {
    UErrorCode error = U_ZERO_ERROR;
    const icu::Normalizer2* nfc = icu::Normalizer2::getNFCInstance(error);
    // Lives as long as the program, like the normalizer that refers to it.
    static icu::UnicodeSet assigned(UNICODE_STRING_SIMPLE("[:age=9.0:]"), error);
    LOCKSTEP_CHECK(U_SUCCESS(error), "ICU has no NFC tables");
    assigned.freeze();
    return icu::FilteredNormalizer2(*nfc, assigned);
  }();
  return instance;
}

}  // namespace

std::string to_nfc(std::string_view text) {
  if (is_ascii(text)) return std::string(text);
  LOCKSTEP_CHECK(text.size() < size_t{1} << 31, "a text of 2 GiB");
  UErrorCode error = U_ZERO_ERROR;
  std::string out;
  icu::StringByteSink<std::string> sink(&out);
  pinned_nfc().normalizeUTF8(0, icu::StringPiece(text.data(), static_cast<int32_t>(text.size())), sink,
                             nullptr, error);
  LOCKSTEP_CHECK(U_SUCCESS(error), "NFC failed");
  return out;
}

bool is_in_unicode(char32_t code) {
  UVersionInfo age;
  u_charAge(static_cast<UChar32>(code), age);
  return age[0] > 0 && age[0] <= kUnicodeVersion;
}

std::string without_newer_characters(std::string_view text) {
  if (is_ascii(text)) return std::string(text);
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size();) {
    const Utf8Char c = next_utf8(text, i);
    const auto length = static_cast<size_t>(c.length_bytes);
    if (c.code < 0x80 || is_in_unicode(c.code)) {
      out.append(text.substr(i, length));
    } else {
      // Noncharacters; there is none of two bytes, where a control character stands in.
      append_utf8(out, length == 2 ? 0x80 : length == 3 ? 0xFFFE : 0x1FFFE);
    }
    i += length;
  }
  return out;
}

bool is_word(char32_t code) {
  const auto c = static_cast<UChar32>(code);
  if (!is_in_unicode(code)) return false;
  if (u_hasBinaryProperty(c, UCHAR_ALPHABETIC) || u_hasBinaryProperty(c, UCHAR_JOIN_CONTROL)) return true;
  switch (u_charType(c)) {
    case U_NON_SPACING_MARK:
    case U_ENCLOSING_MARK:
    case U_COMBINING_SPACING_MARK:
    case U_DECIMAL_DIGIT_NUMBER:
    case U_CONNECTOR_PUNCTUATION:
      return true;
    default:
      return false;
  }
}

bool is_white(char32_t code) {
  return u_isUWhiteSpace(static_cast<UChar32>(code)) != 0;
}

bool is_numeric(char32_t code) {
  if (!is_in_unicode(code)) return false;
  const int8_t type = u_charType(static_cast<UChar32>(code));
  return type == U_DECIMAL_DIGIT_NUMBER || type == U_LETTER_NUMBER || type == U_OTHER_NUMBER;
}

std::string text_library_versions() {
  char pcre2[64] = {};
  char pcre2_unicode[64] = {};
  pcre2_config(PCRE2_CONFIG_VERSION, pcre2);
  pcre2_config(PCRE2_CONFIG_UNICODE_VERSION, pcre2_unicode);
  UVersionInfo version;
  char icu_version[U_MAX_VERSION_STRING_LENGTH] = {};
  char icu_unicode[U_MAX_VERSION_STRING_LENGTH] = {};
  u_getVersion(version);
  u_versionToString(version, icu_version);
  u_getUnicodeVersion(version);
  u_versionToString(version, icu_unicode);
  return std::string("PCRE2 ") + pcre2 + " (Unicode " + pcre2_unicode + "), ICU " + icu_version +
         " (Unicode " + icu_unicode + ")";
}

}  // namespace lockstep::data
