// SPDX-License-Identifier: Apache-2.0
#include "loop/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>

#include "core/log.h"

namespace lockstep::loop {
namespace {

constexpr double kRefreshSeconds = 0.1;
constexpr const char* kClearLine = "\r\033[K";

void write_stderr(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stderr);
  std::fflush(stderr);
}

}  // namespace

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

std::string duration_text(double seconds) {
  const int64_t whole = std::llround(seconds);
  if (whole >= 3600) return fmt::format("{} h {:02} min", whole / 3600, whole % 3600 / 60);
  if (whole >= 60) return fmt::format("{} min {:02} s", whole / 60, whole % 60);
  return fmt::format("{} s", whole);
}

ProgressLine::ProgressLine() : terminal_(::isatty(STDERR_FILENO) == 1) {}

ProgressLine::~ProgressLine() {
  if (shown_) write_stderr(kClearLine);
}

void ProgressLine::update(const std::string& text) {
  if (!terminal_ || (shown_ && seconds_since(last_) < kRefreshSeconds)) return;
  write_stderr(kClearLine + text);
  shown_ = true;
  last_ = std::chrono::steady_clock::now();
}

void ProgressLine::line(const std::string& text) {
  if (shown_) write_stderr(kClearLine);
  shown_ = false;
  log_line(text);
}

}  // namespace lockstep::loop
