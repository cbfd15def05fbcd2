// SPDX-License-Identifier: Apache-2.0
// The safetensors format: 8 bytes of header length (little-endian), a JSON header, then the tensors' bytes.
// Reading trusts nothing in the header; writing is a pure function of the tensors (docs/formats.md).
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/dtype.h"
#include "core/file.h"
#include "core/sha256.h"
#include "core/status.h"

namespace lockstep::checkpoint {

// A longer header is refused, as the format's own library does.
inline constexpr int64_t kMaxSafetensorsHeaderBytes = 100'000'000;

struct TensorInfo {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;  // empty: a scalar
  int64_t begin_bytes = 0;     // of the data section
  int64_t size_bytes = 0;

  int64_t elements() const { return size_bytes / dtype_size_bytes(dtype); }
  // Rows are slices along the first axis; a scalar is one row.
  int64_t rows() const { return shape.empty() ? 1 : shape[0]; }
};

// "F32 [2,3]".
std::string type_text(DType dtype, const std::vector<int64_t>& shape);
// A name in double quotes, control characters escaped, so that a message stays one line.
std::string quote_name(std::string_view name);

struct SafetensorsHeader {
  std::vector<TensorInfo> tensors;  // by name in byte order
  std::map<std::string, std::string> metadata;
};

// Parses and checks a header: every tensor's offsets agree with dtype and shape, and the tensors cover
// exactly `data_bytes` bytes without hole or overlap. `path` is only named in errors (kInvalid).
Result<SafetensorsHeader> parse_safetensors_header(const std::string& path, std::string_view header,
                                                   int64_t data_bytes);

// An open file. Only the header is in memory; reads are positional, so one object may be read by many
// threads.
class SafetensorsFile {
 public:
  static Result<SafetensorsFile> open(const std::string& path);

  const std::string& path() const { return path_; }
  const std::vector<TensorInfo>& tensors() const { return header_.tensors; }  // by name in byte order
  const std::map<std::string, std::string>& metadata() const { return header_.metadata; }
  int64_t file_bytes() const { return file_bytes_; }

  const TensorInfo* find(std::string_view name) const;  // nullptr: not there
  Result<const TensorInfo*> get(std::string_view name) const;

  // The tensor's bytes as they are: size_bytes of them.
  Status read(std::string_view name, void* dst) const;
  // Bytes [begin, begin + size) of the tensor.
  Status read_bytes(const TensorInfo& tensor, int64_t begin_bytes, int64_t size_bytes, void* dst) const;
  // Elements as binary32. F32, BF16 and F16 are exact; other types are refused.
  Status read_f32(std::string_view name, float* dst) const;
  // Rows [row_begin, row_end) along the first axis.
  Status read_f32(std::string_view name, int64_t row_begin, int64_t row_end, float* dst) const;

 private:
  struct Descriptor;
  Status read_f32_elements(const TensorInfo& tensor, int64_t first, int64_t count, float* dst) const;

  std::string path_;
  SafetensorsHeader header_;
  std::shared_ptr<const Descriptor> descriptor_;
  int64_t data_begin_bytes_ = 0;
  int64_t file_bytes_ = 0;
};

struct TensorSpec {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;
};

// Writes a file in one pass and hashes it on the way. Tensors lie by element size, largest first, then by
// name in byte order (so all are aligned); within one dtype that is the order of names.
class SafetensorsWriter {
 public:
  // Sorts `specs`; kInvalid for a name twice or a shape that overflows.
  static Result<SafetensorsWriter> create(const std::string& path, std::vector<TensorSpec> specs);

  // The order in which append() wants them.
  const std::vector<TensorInfo>& tensors() const { return tensors_; }
  // The next bytes of `name`; a tensor may come in several pieces. Tensors come in the order of tensors().
  Status append(std::string_view name, const void* bytes, int64_t size_bytes);
  // After the last tensor: fsync and close. kStopped when the disk is full.
  Status close();

  // Of the whole file; after close().
  const std::string& sha256() const { return sha256_; }
  int64_t file_bytes() const { return file_bytes_; }

 private:
  SafetensorsWriter() = default;
  void skip_finished_tensors();

  std::string path_;
  FileWriter file_;
  std::unique_ptr<Sha256> hash_;
  std::string sha256_;
  std::vector<TensorInfo> tensors_;
  size_t current_ = 0;
  int64_t written_of_current_bytes_ = 0;
  int64_t file_bytes_ = 0;
};

// Bytes the file of these tensors will have; kInvalid as create().
Result<int64_t> safetensors_file_bytes(std::vector<TensorSpec> specs);

}  // namespace lockstep::checkpoint
