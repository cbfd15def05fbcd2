// SPDX-License-Identifier: Apache-2.0
// Expected texts in tests/data/golden come from Jinja 3.1.6 set up as transformers sets it up.
#include "data/chat_template.h"

#include <gtest/gtest.h>

#include <map>

#include "data/data_test_support.h"
#include "data/jsonl.h"

namespace lockstep::data {
namespace {

using testing::test_data;

Result<std::string> rendered(const std::string& text, const ValueMap& variables) {
  LOCKSTEP_ASSIGN_OR_RETURN(const ChatTemplate chat_template, ChatTemplate::parse(text));
  return chat_template.render_with(variables);
}

std::string error_of(const std::string& text) {
  const Result<std::string> result = rendered(text, {});
  return result.ok() ? "no error: " + result.value() : result.status().message();
}

TEST(ChatTemplate, EveryGoldenChat) {
  const ChatTemplate chat_template = ChatTemplate::parse(qwen().chat_template()).value();
  const JsonlFile file = read_jsonl(test_data("golden/chat.jsonl")).value();
  ASSERT_EQ(file.records.size(), 5U);
  for (const JsonRecord& record : file.records) {
    const auto text = chat_template.render(*record.value.find("messages"),
                                           record.value.find("add_generation_prompt")->as_bool());
    ASSERT_TRUE(text.ok()) << text.status().message();
    EXPECT_EQ(text.value(), record.value.find("text")->as_string());
  }
}

// One text or "error" for both: where Jinja raises, so do we.
void expect_same(const Value& expected, const Result<std::string>& got, const std::string& what) {
  if (const Value* text = expected.find("text"); text != nullptr) {
    ASSERT_TRUE(got.ok()) << what << "\n" << got.status().message();
    EXPECT_EQ(got.value(), text->as_string()) << what;
  } else {
    EXPECT_FALSE(got.ok()) << what << "\nJinja: " << expected.find("error")->as_string()
                           << "\ngot: " << got.value();
  }
}

TEST(ChatTemplate, SameAsJinjaOnSmallTemplates) {
  const JsonlFile file = read_jsonl(test_data("golden/jinja_cases.jsonl")).value();
  const ValueMap& variables = file.records[0].value.find("variables")->as_map();
  for (size_t i = 1; i < file.records.size(); ++i) {
    const std::string& text = file.records[i].value.find("template")->as_string();
    expect_same(file.records[i].value, rendered(text, variables), text);
  }
  EXPECT_EQ(file.records.size(), 135U);
}

TEST(ChatTemplate, SameAsJinjaOnWholeTemplates) {
  const JsonlFile file = read_jsonl(test_data("golden/template_cases.jsonl")).value();
  std::map<std::string, ChatTemplate> templates;
  templates.emplace("qwen2.5", ChatTemplate::parse(qwen().chat_template()).value());
  int cases = 0;
  for (const JsonRecord& record : file.records) {
    if (const Value* text = record.value.find("template"); text != nullptr) {
      auto parsed = ChatTemplate::parse(text->as_string());
      ASSERT_TRUE(parsed.ok()) << parsed.status().message();
      templates.emplace(record.value.find("name")->as_string(), std::move(parsed).value());
      continue;
    }
    const std::string& name = record.value.find("use")->as_string();
    expect_same(record.value, templates.at(name).render_with(record.value.find("variables")->as_map()),
                name + ", line " + std::to_string(record.line));
    ++cases;
  }
  EXPECT_EQ(cases, 120);
}

// Case C06.
TEST(ChatTemplate, BlanksBeforeAndAfterTags) {
  EXPECT_EQ(rendered("  {% if true %}\nA\n  {% endif %}\nB", {}).value(), "A\nB");
}

TEST(ChatTemplate, RefusalsNameLineAndRemedy) {
  EXPECT_EQ(error_of("a\n\n{{ x | upperr }}"),
            "chat template line 3: filter 'upperr' is not supported; nearest known: 'upper'");
  EXPECT_EQ(error_of("\n{{ x is defned }}"),
            "chat template line 2: test 'defned' is not supported; nearest known: 'defined'");
  EXPECT_EQ(error_of("{{ x.stripp() }}"),
            "chat template line 1: method 'stripp' is not supported; nearest known: 'strip'");
  EXPECT_EQ(error_of("\n\n{% include 'x' %}").substr(0, 53),
            "chat template line 3: statement 'include' is not supp");
  EXPECT_EQ(error_of("{{ a.b.c }}"), "chat template line 1: a is undefined");
  EXPECT_EQ(error_of("{% set m = {'a': 1} %}\n{{ m.b.c }}"), "chat template line 2: m.b is undefined");
  EXPECT_EQ(error_of("x\n{{ raise_exception('no system turns') }}"),
            "chat template line 2: the template refuses these messages: no system turns");
  EXPECT_EQ(error_of("{{ strftime_now('%d') }}"),
            "chat template line 1: 'strftime_now' is not defined (a prompt must not depend on the day)");
  EXPECT_EQ(error_of("{% set m = {'a': 1} %}{{ m.items }}"),
            "chat template line 1: 'items' is a method of dict here; write ['items'] for the key");
}

TEST(ChatTemplate, WorkAndNestingAreBounded) {
  EXPECT_NE(error_of("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}")
                .find("too much work"),
            std::string::npos);
  EXPECT_NE(
      error_of(
          "{% set ns = namespace(x='ab') %}{% for a in range(99) %}{% set ns.x = ns.x + ns.x %}{% endfor %}")
          .find("line 1"),
      std::string::npos);
  EXPECT_NE(
      error_of("{% set ns = namespace(x=[]) %}{% for a in range(999) %}{% set ns.x = [ns.x] %}{% endfor %}")
          .find("nested too deeply"),
      std::string::npos);
  EXPECT_NE(error_of("{{ 'x' * 99999999999 }}").find("too large"), std::string::npos);
  EXPECT_NE(error_of("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}").find("nested too deeply"),
            std::string::npos);
  EXPECT_NE(error_of("{{ " + std::string(5000, '(') + "1" + std::string(5000, ')') + " }}")
                .find("nested too deeply"),
            std::string::npos);
  std::string chain = "{{ 1";
  for (int i = 0; i < 5000; ++i) chain += " + 1";
  EXPECT_NE(error_of(chain + " }}").find("nested too deeply"), std::string::npos);
  std::string blocks;
  for (int i = 0; i < 5000; ++i) blocks += "{% if true %}";
  EXPECT_NE(error_of(blocks).find("nested too deeply"), std::string::npos);
}

// Parts shared between values, and texts that one step multiplies, cost what they hold in full.
TEST(ChatTemplate, SharedPartsAreBounded) {
  std::string doubled = "{% set a = ['x'] %}";
  for (int i = 0; i < 60; ++i) doubled += "{% set a = [a, a] %}";
  for (const char* use : {"{{ a }}", "{{ a | tojson }}", "{{ a == [a] }}", "{{ a | string | length }}"}) {
    EXPECT_NE(error_of(doubled + use).find("too large"), std::string::npos) << use;
  }
  const std::string big = "{% set x = 'x' * 20000000 %}";
  std::string concat = "{{ x";
  std::string blocks;
  for (int i = 0; i < 200; ++i) {
    concat += " ~ x";
    blocks += "{% set y" + std::to_string(i) + " %}{{ x }}{% endset %}";
  }
  const std::string alike = "{% set x = 'a' * 1200000 %}{% set y = 'a' * 700000 + 'b' %}";
  const std::vector<std::string> texts = {
      big + concat + " }}",
      big + blocks,
      big + "{{ ([x] * 60) | map('upper') | list | length }}",
      "{{ (['a'] * 9000) | map('replace', 'a', 'b' * 99999) | list | length }}",
      "{{ ([1] * 40000) | tojson(separators=['x' * 60000, '']) | length }}",
      "{{ ('\\n' * 1100000).splitlines() | length }}",
      "{{ ('a ' * 1100000).split() | length }}",
      alike + "{{ y in x }}",
      alike + "{{ x.find(y) }}",
      alike + "{{ x | replace(y, '') | length }}",
      alike + "{{ [x] | select('in', y) | list | length }}"};
  for (const std::string& text : texts) {
    EXPECT_EQ(error_of(text).substr(0, 21), "chat template line 1:") << text.substr(0, 200);
  }
}

}  // namespace
}  // namespace lockstep::data
