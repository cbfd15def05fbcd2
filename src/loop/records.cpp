// SPDX-License-Identifier: Apache-2.0
#include "loop/records.h"

namespace lockstep::loop {

void RecordBytes::add(uint64_t value) {
  raw(&value, sizeof(value));
}
void RecordBytes::add(double value) {
  raw(&value, sizeof(value));
}
void RecordBytes::add(const std::string& text) {
  add(static_cast<uint64_t>(text.size()));
  raw(text.data(), text.size());
}
void RecordBytes::add(const std::vector<int32_t>& values) {
  add(static_cast<uint64_t>(values.size()));
  raw(values.data(), values.size() * sizeof(int32_t));
}
void RecordBytes::add(const std::vector<float>& values) {
  add(static_cast<uint64_t>(values.size()));
  raw(values.data(), values.size() * sizeof(float));
}
void RecordBytes::add(const std::vector<double>& values) {
  add(static_cast<uint64_t>(values.size()));
  raw(values.data(), values.size() * sizeof(double));
}

}  // namespace lockstep::loop
