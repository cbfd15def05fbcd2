// SPDX-License-Identifier: Apache-2.0
// TensorBoard event files of scalars: TFRecord frames around Event messages
// (tensorflow/core/util/event.proto). Five fields of a frozen wire format, so they are written here and no
// protobuf is needed to build. Times are in them: one of the files of a run that promise nothing
// (docs/formats.md).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/file.h"
#include "core/status.h"

namespace lockstep::loop {

// CRC-32C (Castagnoli, RFC 3720) of `bytes`.
uint32_t crc32c(std::string_view bytes);
// One frame: length, masked CRC of the length, data, masked CRC of the data.
std::string event_frame(std::string_view event);
// An Event of scalars at `step`.
std::string scalar_event(double wall_time, int64_t step,
                         const std::vector<std::pair<std::string, float>>& scalars);

class EventFile {
 public:
  // A new file in `folder`, which is made. Steps at or after `first_step` of earlier files are dropped by
  // TensorBoard.
  static Result<EventFile> create(const std::string& folder, int64_t first_step);
  Status add(int64_t step, const std::vector<std::pair<std::string, float>>& scalars);

 private:
  FileWriter file_;
};

}  // namespace lockstep::loop
