// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/safetensors.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "core/buffer.h"
#include "core/bytes.h"
#include "core/suggest.h"
#include "numerics/bfloat16.h"

namespace lockstep::checkpoint {
namespace {

constexpr int64_t kPieceBytes = int64_t{1} << 20;
constexpr int64_t kHeaderAlignmentBytes = 8;

Status read_at(int fd, const std::string& path, int64_t offset, int64_t size, void* dst) {
  char* out = static_cast<char*>(dst);
  int64_t done = 0;
  while (done < size) {
    const auto want = static_cast<size_t>(std::min(size - done, int64_t{1} << 30));
    const ssize_t n = ::pread(fd, out + done, want, offset + done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return invalid("{}: read error at byte {}: {}", path, offset + done, std::strerror(errno));
    if (n == 0) return invalid("{}: the file ended at byte {} while it was read", path, offset + done);
    done += n;
  }
  return ok_status();
}

Result<std::vector<TensorInfo>> place_tensors(const std::string& path, std::vector<TensorSpec> specs) {
  std::sort(specs.begin(), specs.end(),
            [](const TensorSpec& a, const TensorSpec& b) { return a.name < b.name; });
  for (size_t i = 0; i < specs.size(); ++i) {
    if (i > 0 && specs[i].name == specs[i - 1].name) {
      return invalid("{}: tensor {} is to be written twice", path, quote_name(specs[i].name));
    }
  }
  std::stable_sort(specs.begin(), specs.end(), [](const TensorSpec& a, const TensorSpec& b) {
    return dtype_size_bytes(a.dtype) > dtype_size_bytes(b.dtype);
  });
  std::vector<TensorInfo> tensors;
  int64_t end = 0;
  for (TensorSpec& spec : specs) {
    int64_t size = dtype_size_bytes(spec.dtype);
    bool overflow = false;
    for (const int64_t extent : spec.shape) {
      overflow = overflow || extent < 0 || __builtin_mul_overflow(size, extent, &size);
    }
    const int64_t begin = end;
    if (overflow || __builtin_add_overflow(begin, size, &end)) {
      return invalid("{}: tensor {}: {} is not a size a file can have", path, quote_name(spec.name),
                     type_text(spec.dtype, spec.shape));
    }
    tensors.push_back({std::move(spec.name), spec.dtype, std::move(spec.shape), begin, size});
  }
  return tensors;
}

// Fixed order of keys, no spaces, padded with spaces so that the data begin at a multiple of 8.
std::string header_text(const std::vector<TensorInfo>& tensors) {
  std::string text = R"({"__metadata__":{"format":"pt"})";
  for (const TensorInfo& tensor : tensors) {
    text += fmt::format(R"(,{}:{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})",
                        quote_name(tensor.name), dtype_name(tensor.dtype), fmt::join(tensor.shape, ","),
                        tensor.begin_bytes, tensor.begin_bytes + tensor.size_bytes);
  }
  text += '}';
  while (text.size() % kHeaderAlignmentBytes != 0) text += ' ';
  return text;
}

}  // namespace

struct SafetensorsFile::Descriptor {
  explicit Descriptor(int descriptor) : fd(descriptor) {}
  ~Descriptor() { ::close(fd); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  const int fd;
};

Result<SafetensorsFile> SafetensorsFile::open(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return invalid("{}: cannot open: {}", path, std::strerror(errno));
  SafetensorsFile file;
  file.path_ = path;
  file.descriptor_ = std::make_shared<const Descriptor>(fd);
  struct stat info {};
  if (::fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) return invalid("{}: is not a regular file", path);
  file.file_bytes_ = static_cast<int64_t>(info.st_size);
  if (file.file_bytes_ < 8) {
    return invalid("{}: not a safetensors file: expected at least 8 bytes, found {}", path, file.file_bytes_);
  }
  uint64_t header_bytes = 0;
  LOCKSTEP_RETURN_IF_ERROR(read_at(fd, path, 0, 8, &header_bytes));
  if (header_bytes > static_cast<uint64_t>(kMaxSafetensorsHeaderBytes)) {
    return invalid("{}: not a safetensors file: its header would have {} bytes (at most {})", path,
                   header_bytes, kMaxSafetensorsHeaderBytes);
  }
  const auto header_size = static_cast<int64_t>(header_bytes);
  if (header_size > file.file_bytes_ - 8) {
    return invalid("{}: the file is cut: expected a header of {} bytes, found {} bytes behind its length",
                   path, header_size, file.file_bytes_ - 8);
  }
  std::string header(header_bytes, '\0');
  LOCKSTEP_RETURN_IF_ERROR(read_at(fd, path, 8, header_size, header.data()));
  file.data_begin_bytes_ = 8 + header_size;
  LOCKSTEP_ASSIGN_OR_RETURN(
      file.header_, parse_safetensors_header(path, header, file.file_bytes_ - file.data_begin_bytes_));
  return file;
}

const TensorInfo* SafetensorsFile::find(std::string_view name) const {
  const auto& all = header_.tensors;
  const auto it =
      std::lower_bound(all.begin(), all.end(), name,
                       [](const TensorInfo& tensor, std::string_view n) { return tensor.name < n; });
  return it != all.end() && it->name == name ? &*it : nullptr;
}

Result<const TensorInfo*> SafetensorsFile::get(std::string_view name) const {
  const TensorInfo* tensor = find(name);
  if (tensor != nullptr) return tensor;
  std::vector<std::string> names;
  for (const TensorInfo& other : header_.tensors) names.push_back(other.name);
  const std::string near = nearest_name(name, names);
  return invalid("{}: has no tensor {}{} ({} tensors)", path_, quote_name(name),
                 near.empty() ? "" : "; nearest: " + quote_name(near), names.size());
}

Status SafetensorsFile::read_bytes(const TensorInfo& tensor, int64_t begin_bytes, int64_t size_bytes,
                                   void* dst) const {
  LOCKSTEP_CHECK(begin_bytes >= 0 && size_bytes >= 0 && begin_bytes <= tensor.size_bytes - size_bytes);
  return read_at(descriptor_->fd, path_, data_begin_bytes_ + tensor.begin_bytes + begin_bytes, size_bytes,
                 dst);
}

Status SafetensorsFile::read(std::string_view name, void* dst) const {
  LOCKSTEP_ASSIGN_OR_RETURN(const TensorInfo* tensor, get(name));
  return read_bytes(*tensor, 0, tensor->size_bytes, dst);
}

Status SafetensorsFile::read_f32_elements(const TensorInfo& tensor, int64_t first, int64_t count,
                                          float* dst) const {
  if (tensor.dtype == DType::kF32) {
    return read_bytes(tensor, first * 4, count * 4, dst);
  }
  if (tensor.dtype != DType::kBF16 && tensor.dtype != DType::kF16) {
    return invalid("{}: tensor {}: {} cannot be read as F32 exactly (F32, BF16 and F16 can)", path_,
                   quote_name(tensor.name), type_text(tensor.dtype, tensor.shape));
  }
  const int64_t piece = kPieceBytes / 2;
  Buffer<uint16_t> bits(std::min(piece, count));
  for (int64_t done = 0; done < count; done += piece) {
    const int64_t n = std::min(piece, count - done);
    LOCKSTEP_RETURN_IF_ERROR(read_bytes(tensor, (first + done) * 2, n * 2, bits.data()));
    float* out = dst + done;
    if (tensor.dtype == DType::kBF16) {
      for (int64_t i = 0; i < n; ++i) out[i] = numerics::bfloat16_to_float(bits[i]);
    } else {
      for (int64_t i = 0; i < n; ++i) out[i] = numerics::float16_to_float(bits[i]);
    }
  }
  return ok_status();
}

Status SafetensorsFile::read_f32(std::string_view name, float* dst) const {
  LOCKSTEP_ASSIGN_OR_RETURN(const TensorInfo* tensor, get(name));
  return read_f32_elements(*tensor, 0, tensor->elements(), dst);
}

Status SafetensorsFile::read_f32(std::string_view name, int64_t row_begin, int64_t row_end,
                                 float* dst) const {
  LOCKSTEP_ASSIGN_OR_RETURN(const TensorInfo* tensor, get(name));
  if (row_begin < 0 || row_begin > row_end || row_end > tensor->rows()) {
    return invalid("{}: tensor {}: has {} rows, wanted [{},{})", path_, quote_name(name), tensor->rows(),
                   row_begin, row_end);
  }
  const int64_t width = tensor->rows() == 0 ? 0 : tensor->elements() / tensor->rows();
  return read_f32_elements(*tensor, row_begin * width, (row_end - row_begin) * width, dst);
}

Result<SafetensorsWriter> SafetensorsWriter::create(const std::string& path, std::vector<TensorSpec> specs) {
  SafetensorsWriter writer;
  writer.path_ = path;
  LOCKSTEP_ASSIGN_OR_RETURN(writer.tensors_, place_tensors(path, std::move(specs)));
  const std::string header = header_text(writer.tensors_);
  if (static_cast<int64_t>(header.size()) > kMaxSafetensorsHeaderBytes) {
    return invalid("{}: its header would have {} bytes (at most {})", path, header.size(),
                   kMaxSafetensorsHeaderBytes);
  }
  char length[8];
  store_le<uint64_t>(length, header.size());
  LOCKSTEP_ASSIGN_OR_RETURN(writer.file_, FileWriter::open(path));
  writer.hash_ = std::make_unique<Sha256>();
  const std::string head = std::string(length, sizeof(length)) + header;
  LOCKSTEP_RETURN_IF_ERROR(writer.file_.write(head));
  writer.hash_->update(head);
  writer.skip_finished_tensors();
  return writer;
}

void SafetensorsWriter::skip_finished_tensors() {
  while (current_ < tensors_.size() && written_of_current_bytes_ == tensors_[current_].size_bytes) {
    ++current_;
    written_of_current_bytes_ = 0;
  }
}

Status SafetensorsWriter::append(std::string_view name, const void* bytes, int64_t size_bytes) {
  if (size_bytes == 0) return ok_status();
  LOCKSTEP_CHECK(current_ < tensors_.size() && tensors_[current_].name == name,
                 "tensors are written in the order of tensors(); not so: " + std::string(name));
  const TensorInfo& tensor = tensors_[current_];
  LOCKSTEP_CHECK(size_bytes > 0 && size_bytes <= tensor.size_bytes - written_of_current_bytes_,
                 "more bytes than the tensor has: " + tensor.name);
  LOCKSTEP_RETURN_IF_ERROR(file_.write(bytes, static_cast<size_t>(size_bytes)));
  hash_->update(bytes, static_cast<size_t>(size_bytes));
  written_of_current_bytes_ += size_bytes;
  skip_finished_tensors();
  return ok_status();
}

Status SafetensorsWriter::close() {
  LOCKSTEP_CHECK(current_ == tensors_.size(),
                 current_ < tensors_.size() ? "tensor not written whole: " + tensors_[current_].name : "");
  file_bytes_ = file_.bytes_written();
  LOCKSTEP_RETURN_IF_ERROR(file_.close());
  sha256_ = hash_->hex();
  return ok_status();
}

Result<int64_t> safetensors_file_bytes(std::vector<TensorSpec> specs) {
  LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<TensorInfo> tensors, place_tensors("", std::move(specs)));
  const auto header = static_cast<int64_t>(header_text(tensors).size());
  return 8 + header + (tensors.empty() ? 0 : tensors.back().begin_bytes + tensors.back().size_bytes);
}

}  // namespace lockstep::checkpoint
