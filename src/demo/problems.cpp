// SPDX-License-Identifier: Apache-2.0
#include "demo/problems.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>

#include "core/check.h"
#include "numerics/philox.h"

namespace lockstep::demo {
namespace {

// A story: {N} name, {P} / {p} pronoun, {T} thing, {n} number. Every story has the same three parts.
struct Frame {
  const char* opening;
  std::vector<const char*> gains;
  std::vector<const char*> losses;
  const char* closing;
  std::vector<const char*> things;  // may be empty
};

const std::vector<Frame>& frames() {
  static const std::vector<Frame> kFrames = {
      {"{N} has {n} {T}.",
       {" {P} buys {n}.", " {P} finds {n}."},
       {" {P} eats {n}.", " {P} gives away {n}."},
       " How many {T} does {p} have?",
       {"apples", "nuts", "eggs"}},
      {"{N} has {n} {T}.",
       {" {P} gets {n}.", " {P} makes {n}."},
       {" {P} loses {n}.", " {P} sells {n}."},
       " How many {T} does {p} have?",
       {"pens", "books", "cards"}},
      {"There are {n} {T} in a tree.",
       {" {n} come."},
       {" {n} fly away."},
       " How many {T} are in the tree?",
       {"birds", "bees"}},
      {"A bus has {n} people.", {" {n} get on."}, {" {n} get off."}, " How many people are on the bus?", {}},
      {"A shop has {n} {T}.",
       {" It bakes {n}.", " It buys {n}."},
       {" It sells {n}."},
       " How many {T} are left?",
       {"cakes", "pies"}},
  };
  return kFrames;
}

struct Person {
  const char* name;
  const char* subject;  // at the start of a sentence
  const char* pronoun;
};
constexpr Person kPeople[] = {{"Tom", "He", "he"},   {"Mia", "She", "she"}, {"Sam", "He", "he"},
                              {"Ana", "She", "she"}, {"Ben", "He", "he"},   {"Eva", "She", "she"}};

// Numbers below a bound, one Philox draw each: `stream` keeps train, test and warm-up apart.
class Draws {
 public:
  Draws(uint64_t seed, uint64_t stream) : seed_(seed), stream_(stream) {}
  int64_t below(int64_t bound) {
    const uint64_t high = numerics::draw(seed_, numerics::Purpose::kData, stream_, 0, next_++) >> 32;
    return static_cast<int64_t>((high * static_cast<uint64_t>(bound)) >> 32);
  }
  template <typename T>
  const T& pick(const std::vector<T>& from) {
    return from[static_cast<size_t>(below(static_cast<int64_t>(from.size())))];
  }

 private:
  uint64_t seed_;
  uint64_t stream_;
  uint32_t next_ = 0;
};

void replace_all(std::string& text, std::string_view mark, std::string_view by) {
  for (size_t at = text.find(mark); at != std::string::npos; at = text.find(mark, at + by.size())) {
    text.replace(at, mark.size(), by);
  }
}

std::string with_number(const char* part, int number) {
  std::string text = part;
  replace_all(text, "{n}", std::to_string(number));
  return text;
}

Problem tell(const Arithmetic& arithmetic, Draws& draws) {
  const Frame& frame = draws.pick(frames());
  const Person& person = kPeople[draws.below(std::size(kPeople))];
  std::string text = with_number(frame.opening, arithmetic.operands[0]);
  for (size_t step = 0; step < 2; ++step) {
    const auto& parts = arithmetic.operations[step] == '+' ? frame.gains : frame.losses;
    text += with_number(draws.pick(parts), arithmetic.operands[step + 1]);
  }
  text += frame.closing;
  if (!frame.things.empty()) replace_all(text, "{T}", draws.pick(frame.things));
  replace_all(text, "{N}", person.name);
  replace_all(text, "{P}", person.subject);
  replace_all(text, "{p}", person.pronoun);
  return {arithmetic, std::move(text)};
}

int apply(char operation, int left, int right) {
  return operation == '+' ? left + right : left - right;
}

// The words of `text`: runs of letters with the space before them.
void collect_words(std::string_view text, std::set<std::string>& words) {
  const auto letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); };
  for (size_t at = 0; at < text.size();) {
    const size_t start = at;
    if (text[at] == ' ') ++at;
    const size_t first = at;
    while (at < text.size() && letter(text[at])) ++at;
    if (at - first > 0 && at - start > 1) words.emplace(text.substr(start, at - start));
    if (at == start || at == first) at = first + (text[start] == ' ' ? 0 : 1);
  }
}

}  // namespace

int Arithmetic::middle() const {
  return apply(operations[0], operands[0], operands[1]);
}
int Arithmetic::result() const {
  return apply(operations[1], middle(), operands[2]);
}

std::string Problem::worked() const {
  const auto& [operands, operations] = arithmetic;
  return fmt::format("{}{}{}={}\n{}{}{}={}\n#### {}", operands[0], operations[0], operands[1],
                     arithmetic.middle(), arithmetic.middle(), operations[1], operands[2],
                     arithmetic.result(), arithmetic.result());
}
std::string Problem::direct() const {
  return fmt::format("#### {}", arithmetic.result());
}

std::vector<Arithmetic> all_arithmetic() {
  std::vector<Arithmetic> all;
  for (const char* operations : {"++", "+-", "-+", "--"}) {
    for (int digits = 0; digits < 729; ++digits) {
      const Arithmetic arithmetic{{digits / 81 + 1, digits / 9 % 9 + 1, digits % 9 + 1},
                                  {operations[0], operations[1]}};
      if (arithmetic.middle() >= 1 && arithmetic.result() >= 0) all.push_back(arithmetic);
    }
  }
  return all;
}

ProblemSet make_problems(uint64_t seed, int64_t test_count) {
  std::vector<Arithmetic> tuples = all_arithmetic();
  LOCKSTEP_CHECK(test_count > 0 && test_count < static_cast<int64_t>(tuples.size()),
                 "test_count out of range");
  Draws order(seed, 0);
  for (size_t left = tuples.size(); left > 1; --left) {
    std::swap(tuples[left - 1], tuples[static_cast<size_t>(order.below(static_cast<int64_t>(left)))]);
  }
  ProblemSet problems;
  Draws words(seed, 1);
  for (size_t i = 0; i < tuples.size(); ++i) {
    auto& into = static_cast<int64_t>(i) < test_count ? problems.test : problems.train;
    into.push_back(tell(tuples[i], words));
  }
  return problems;
}

std::vector<WarmupRow> make_warmup_rows(uint64_t seed, const ProblemSet& problems, const WarmupPlan& plan) {
  constexpr int64_t kMillion = 1000000;
  const auto share = [](double value) { return static_cast<int64_t>(std::llround(value * kMillion)); };
  const int64_t early_batches = share(plan.early_share) * plan.batches / kMillion;
  Draws draws(seed, 2);
  std::vector<WarmupRow> rows;
  rows.reserve(static_cast<size_t>(plan.batches * plan.batch_size));
  for (int64_t batch = 0; batch < plan.batches; ++batch) {
    const int64_t direct = share(batch < early_batches ? plan.early_direct : plan.late_direct);
    for (int64_t i = 0; i < plan.batch_size; ++i) {
      const bool is_direct = draws.below(kMillion) < direct;
      rows.push_back({tell(draws.pick(problems.train).arithmetic, draws), is_direct});
    }
  }
  return rows;
}

std::string problems_jsonl(const std::vector<Problem>& problems) {
  std::string text;
  for (const Problem& problem : problems) {
    text += nlohmann::ordered_json{{"question", problem.question}, {"answer", problem.worked()}}.dump();
    text += '\n';
  }
  return text;
}

std::string warmup_jsonl(const std::vector<WarmupRow>& rows) {
  using Json = nlohmann::ordered_json;
  std::string text;
  for (const WarmupRow& row : rows) {
    const std::string answer = row.direct ? row.problem.direct() : row.problem.worked();
    text += Json{{"messages", Json::array({Json{{"role", "user"}, {"content", row.problem.question}},
                                           Json{{"role", "assistant"}, {"content", answer}}})}}
                .dump();
    text += '\n';
  }
  return text;
}

std::vector<std::string> problem_words() {
  std::set<std::string> words;
  const auto add = [&words](std::string text) {
    for (const char* mark : {"{N}", "{P}", "{p}", "{T}", "{n}"}) replace_all(text, mark, "0");
    collect_words(text, words);
  };
  for (const Frame& frame : frames()) {
    add(frame.opening);
    add(frame.closing);
    for (const char* part : frame.gains) add(part);
    for (const char* part : frame.losses) add(part);
    for (const char* thing : frame.things) add(std::string(" ") + thing);
  }
  for (const Person& person : kPeople) {
    add(person.name);
    add(std::string(" ") + person.subject);
    add(std::string(" ") + person.pronoun);
  }
  return {words.begin(), words.end()};
}

}  // namespace lockstep::demo
