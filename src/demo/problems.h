// SPDX-License-Identifier: Apache-2.0
// Two-step arithmetic word problems over single digits, in GSM8K's form: a pure function of a seed. Train and
// test share no (operand, operation) tuple, so no test problem was ever seen in other words either.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::demo {

// first op1 second = middle; middle op2 third = result. Operands 1..9, middle >= 1, result >= 0.
struct Arithmetic {
  std::array<int, 3> operands{};
  std::array<char, 2> operations{};  // '+' or '-'
  int middle() const;
  int result() const;
};

struct Problem {
  Arithmetic arithmetic;
  std::string question;
  std::string worked() const;  // "7-2=5\n5+5=10\n#### 10"
  std::string direct() const;  // "#### 10"
};

struct ProblemSet {
  std::vector<Problem> train;  // one problem of every tuple that is not held out
  std::vector<Problem> test;   // `test_count` held-out tuples, one problem each
};

// Every valid tuple once, in the order of (operations, operands).
std::vector<Arithmetic> all_arithmetic();

// test_count < the number of tuples.
ProblemSet make_problems(uint64_t seed, int64_t test_count);

// The warm-up's plan: rows in the order in which batches take them.
struct WarmupPlan {
  int64_t batches = 1400;
  int64_t batch_size = 16;
  double early_share = 0.7;    // of the batches
  double early_direct = 0.25;  // share of direct answers in them
  double late_direct = 0.75;
};

struct WarmupRow {
  Problem problem;
  bool direct = false;
};

// Problems over the train tuples, each in a frame of its own drawing.
std::vector<WarmupRow> make_warmup_rows(uint64_t seed, const ProblemSet& problems, const WarmupPlan& plan);

// {"question": ..., "answer": worked} a line.
std::string problems_jsonl(const std::vector<Problem>& problems);
// {"messages": [user, assistant]} a line.
std::string warmup_jsonl(const std::vector<WarmupRow>& rows);

// Every word the texts above are made of, each with its leading space where it has one, in byte order.
std::vector<std::string> problem_words();

}  // namespace lockstep::demo
