// SPDX-License-Identifier: Apache-2.0
// The header of a safetensors file. It comes from anywhere, so it is parsed as a stream of events: no tree is
// built, a name given twice is seen, and a number is known to have been written as an integer.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>

#include "checkpoint/safetensors.h"

namespace lockstep::checkpoint {
namespace {

using Json = nlohmann::json;

constexpr std::string_view kMetadataKey = "__metadata__";

class HeaderEvents final : public nlohmann::json_sax<Json> {
 public:
  bool null() override { return refuse_value("null"); }
  bool boolean(bool) override { return refuse_value("true or false"); }
  bool binary(binary_t&) override { return refuse_value("binary"); }
  bool number_float(number_float_t, const string_t& text) override { return refuse_value(text); }
  bool number_integer(number_integer_t value) override { return refuse_value(std::to_string(value)); }
  bool number_unsigned(number_unsigned_t value) override {
    if (where_ != Where::kShape && where_ != Where::kOffsets) return refuse_value(std::to_string(value));
    if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
      return refuse_value(std::to_string(value));
    }
    (where_ == Where::kShape ? tensor_.shape : offsets_).push_back(static_cast<int64_t>(value));
    return true;
  }

  bool string(string_t& value) override {
    if (where_ == Where::kMetadata) {
      header_.metadata[key_] = value;
      return true;
    }
    if (where_ != Where::kTensor || key_ != "dtype") return refuse_value(quote_name(value));
    dtype_ = dtype_from_name(value);
    if (!dtype_) {
      return refuse(fmt::format("{}unknown dtype {} (known: F32, F64, F16, BF16, I8 to I64, U8 to U64, BOOL)",
                                place(), quote_name(value)));
    }
    return true;
  }

  bool start_object(size_t) override {
    if (where_ == Where::kStart) {
      where_ = Where::kTop;
    } else if (where_ == Where::kTop && key_ == kMetadataKey) {
      where_ = Where::kMetadata;
    } else if (where_ == Where::kTop) {
      where_ = Where::kTensor;
      tensor_ = {};
      tensor_.name = key_;
      dtype_.reset();
      offsets_.clear();
      has_shape_ = has_offsets_ = false;
    } else {
      return refuse_value("an object");
    }
    return true;
  }

  bool key(string_t& name) override {
    if (where_ == Where::kMetadata && header_.metadata.count(name) > 0) {
      return refuse(fmt::format("{} has the key {} twice", kMetadataKey, quote_name(name)));
    }
    if (where_ == Where::kTop && name == kMetadataKey && std::exchange(has_metadata_, true)) {
      return refuse(fmt::format("the key {} stands twice", kMetadataKey));
    }
    if (where_ == Where::kTensor) {
      const bool known = name == "dtype" || name == "shape" || name == "data_offsets";
      if (!known) return refuse(fmt::format("{}unknown key {}", place(), quote_name(name)));
      const bool twice = (name == "dtype" && dtype_) || (name == "shape" && has_shape_) ||
                         (name == "data_offsets" && has_offsets_);
      if (twice) return refuse(fmt::format("{}key {} stands twice", place(), quote_name(name)));
    }
    key_ = name;
    return true;
  }

  bool end_object() override {
    if (where_ == Where::kTensor) {
      where_ = Where::kTop;
      return finish_tensor();
    }
    where_ = where_ == Where::kMetadata ? Where::kTop : Where::kEnd;
    return true;
  }

  bool start_array(size_t) override {
    if (where_ == Where::kTensor && key_ == "shape") {
      where_ = Where::kShape;
      has_shape_ = true;
    } else if (where_ == Where::kTensor && key_ == "data_offsets") {
      where_ = Where::kOffsets;
      has_offsets_ = true;
    } else {
      return refuse_value("an array");
    }
    return true;
  }
  bool end_array() override {
    where_ = Where::kTensor;
    return true;
  }

  bool parse_error(size_t position, const std::string&, const nlohmann::detail::exception&) override {
    return refuse(fmt::format("not valid JSON at byte {} of the header", position));
  }

  const std::string& error() const { return error_; }
  SafetensorsHeader& header() { return header_; }

 private:
  enum class Where { kStart, kTop, kTensor, kShape, kOffsets, kMetadata, kEnd };

  std::string place() const { return fmt::format("tensor {}: ", quote_name(tensor_.name)); }

  bool refuse(std::string message) {
    if (error_.empty()) error_ = std::move(message);
    return false;
  }

  bool refuse_value(std::string_view found) {
    switch (where_) {
      case Where::kStart:
      case Where::kEnd:
        return refuse(fmt::format("must be a JSON object, found {}", found));
      case Where::kTop:
        return refuse(fmt::format("tensor {}: must be an object with dtype, shape and data_offsets, found {}",
                                  quote_name(key_), found));
      case Where::kMetadata:
        return refuse(
            fmt::format("{}: {} must be a string, found {}", kMetadataKey, quote_name(key_), found));
      case Where::kShape:
      case Where::kOffsets:
        return refuse(fmt::format("{}{} must hold integers from 0 to 2^63 - 1, found {}", place(),
                                  where_ == Where::kShape ? "shape" : "data_offsets", found));
      case Where::kTensor:
        break;
    }
    const char* want = key_ == "dtype" ? "a string" : "an array of integers";
    return refuse(fmt::format("{}{} must be {}, found {}", place(), key_, want, found));
  }

  bool finish_tensor() {
    if (!dtype_) return refuse(place() + "has no dtype");
    if (!has_shape_) return refuse(place() + "has no shape");
    if (!has_offsets_) return refuse(place() + "has no data_offsets");
    tensor_.dtype = *dtype_;
    const std::string type = type_text(tensor_.dtype, tensor_.shape);
    int64_t size = dtype_size_bytes(tensor_.dtype);
    for (const int64_t extent : tensor_.shape) {
      if (__builtin_mul_overflow(size, extent, &size)) {
        return refuse(fmt::format("{}{} has more than 2^63 bytes", place(), type));
      }
    }
    if (offsets_.size() != 2) {
      return refuse(
          fmt::format("{}data_offsets must be [begin,end], found {} numbers", place(), offsets_.size()));
    }
    if (offsets_[0] > offsets_[1]) {
      return refuse(
          fmt::format("{}data_offsets [{},{}] end before they begin", place(), offsets_[0], offsets_[1]));
    }
    if (offsets_[1] - offsets_[0] != size) {
      return refuse(fmt::format("{}{} needs {} bytes, data_offsets [{},{}] give {}", place(), type, size,
                                offsets_[0], offsets_[1], offsets_[1] - offsets_[0]));
    }
    tensor_.begin_bytes = offsets_[0];
    tensor_.size_bytes = size;
    header_.tensors.push_back(std::move(tensor_));
    return true;
  }

  Where where_ = Where::kStart;
  std::string key_;
  TensorInfo tensor_;
  std::optional<DType> dtype_;
  std::vector<int64_t> offsets_;
  bool has_shape_ = false;
  bool has_offsets_ = false;
  bool has_metadata_ = false;
  SafetensorsHeader header_;
  std::string error_;
};

// Tensors must tile [0, data_bytes). `header_bytes` is only for the message.
Status check_layout(const std::string& path, const std::vector<TensorInfo>& tensors, int64_t header_bytes,
                    int64_t data_bytes) {
  std::vector<size_t> order(tensors.size());
  std::iota(order.begin(), order.end(), size_t{0});
  // Empty tensors before the one that begins where they do.
  const auto end_of = [&](size_t i) { return tensors[i].begin_bytes + tensors[i].size_bytes; };
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return std::pair(tensors[a].begin_bytes, end_of(a)) < std::pair(tensors[b].begin_bytes, end_of(b));
  });
  for (const size_t i : order) {
    if (end_of(i) <= data_bytes) continue;
    const uint64_t head = 8 + static_cast<uint64_t>(header_bytes);
    return invalid("{}: the file is cut: tensor {} ends at byte {}, the file has {} bytes; copy it again",
                   path, quote_name(tensors[i].name), head + static_cast<uint64_t>(end_of(i)),
                   head + static_cast<uint64_t>(data_bytes));
  }
  int64_t covered = 0;
  for (size_t at = 0; at < order.size(); ++at) {
    const TensorInfo& tensor = tensors[order[at]];
    const std::string before = at == 0 ? "the header" : "tensor " + quote_name(tensors[order[at - 1]].name);
    if (tensor.begin_bytes < covered) {
      return invalid("{}: tensor {} begins at byte {} of the data, inside {}, which ends at {}", path,
                     quote_name(tensor.name), tensor.begin_bytes, before, covered);
    }
    if (tensor.begin_bytes > covered) {
      return invalid("{}: {} bytes between {} and tensor {} belong to no tensor", path,
                     tensor.begin_bytes - covered, before, quote_name(tensor.name));
    }
    covered = end_of(order[at]);
  }
  if (covered != data_bytes) {
    return invalid(
        "{}: {} bytes behind the last tensor belong to no tensor (expected {} bytes of data, found {})", path,
        data_bytes - covered, covered, data_bytes);
  }
  return ok_status();
}

}  // namespace

std::string quote_name(std::string_view name) {
  return Json(std::string(name)).dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string type_text(DType dtype, const std::vector<int64_t>& shape) {
  return fmt::format("{} [{}]", dtype_name(dtype), fmt::join(shape, ","));
}

Result<SafetensorsHeader> parse_safetensors_header(const std::string& path, std::string_view header,
                                                   int64_t data_bytes) {
  if (header.empty() || header[0] != '{') {
    return invalid("{}: not a safetensors file: the header must be a JSON object", path);
  }
  // The parser takes a zero byte for the end of its input and would not look behind it.
  const size_t zero = header.find('\0');
  if (zero != std::string_view::npos) {
    return invalid("{}: header: not valid JSON at byte {} of the header", path, zero);
  }
  HeaderEvents events;
  if (!Json::sax_parse(header.begin(), header.end(), &events)) {
    return invalid("{}: header: {}", path, events.error());
  }
  std::vector<TensorInfo>& tensors = events.header().tensors;
  std::sort(tensors.begin(), tensors.end(),
            [](const TensorInfo& a, const TensorInfo& b) { return a.name < b.name; });
  for (size_t i = 1; i < tensors.size(); ++i) {
    if (tensors[i].name == tensors[i - 1].name) {
      return invalid("{}: header: tensor {} stands twice", path, quote_name(tensors[i].name));
    }
  }
  LOCKSTEP_RETURN_IF_ERROR(check_layout(path, tensors, static_cast<int64_t>(header.size()), data_bytes));
  return std::move(events.header());
}

}  // namespace lockstep::checkpoint
