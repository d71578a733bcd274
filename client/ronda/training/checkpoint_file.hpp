// SPDX-License-Identifier: Apache-2.0

// Writes and reads checkpoint files. A file is written completely or not at all, and is checked before it is read.
//
// The format of a file, with numbers in the machine's byte order:
//
//   "RONDACKP", u32 version, u32 tensors, i64 step, u64 bytes of extra, extra
//   for each tensor: u32 dtype, u32 dimensions, u64 bytes of its name, i64 each dimension, the name, its elements
//   u32 CRC-32 of everything above
#ifndef RONDA_CLIENT_RONDA_TRAINING_CHECKPOINT_FILE_HPP_
#define RONDA_CLIENT_RONDA_TRAINING_CHECKPOINT_FILE_HPP_

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "../status.hpp"
#include "../tensor.hpp"

namespace ronda {
inline namespace abi1 {
namespace detail {

// Computes the CRC-32 checksum of ISO 3309, eight bytes at a time. The method is from Kounavis and Berry, "A systematic
// approach to building high performance, software-based, CRC generators", 2005.
class Crc32 {
 public:
  void add(const void* data, std::size_t bytes) {
    const auto* at = static_cast<const unsigned char*>(data);
    for (; bytes >= 8; at += 8, bytes -= 8) {
      std::uint32_t low = 0, high = 0;
      std::memcpy(&low, at, 4);
      std::memcpy(&high, at + 4, 4);
      low ^= rest_;
      rest_ = 0;
      for (unsigned i = 0; i < 4; ++i) {
        rest_ ^= tables()[7 - i][low >> 8 * i & 0xff] ^ tables()[3 - i][high >> 8 * i & 0xff];
      }
    }
    for (; bytes > 0; ++at, --bytes) rest_ = tables()[0][(rest_ ^ *at) & 0xff] ^ rest_ >> 8;
  }
  std::uint32_t value() const { return ~rest_; }

 private:
  using Tables = std::array<std::array<std::uint32_t, 256>, 8>;

  static const Tables& tables() {
    static const Tables made = make_tables();
    return made;
  }
  static Tables make_tables() {
    Tables tables{};
    for (std::uint32_t i = 0; i < 256; ++i) {
      std::uint32_t rest = i;
      for (int bit = 0; bit < 8; ++bit) rest = (rest & 1) != 0 ? 0xedb88320u ^ rest >> 1 : rest >> 1;
      tables[0][i] = rest;
    }
    for (std::size_t t = 1; t < tables.size(); ++t) {
      for (std::uint32_t i = 0; i < 256; ++i) {
        tables[t][i] = tables[0][tables[t - 1][i] & 0xff] ^ tables[t - 1][i] >> 8;
      }
    }
    return tables;
  }

  std::uint32_t rest_ = ~std::uint32_t{0};
};

struct CloseFile {
  void operator()(std::FILE* file) const { std::fclose(file); }
};
using File = std::unique_ptr<std::FILE, CloseFile>;

inline Status file_error(const std::string& what, const std::string& path, int error) {
  const char* const reason = error != 0 ? std::strerror(error) : "the file ends too early";
  return Status(RONDA_ERROR_INTERNAL, "cannot " + what + " " + path + ": " + reason);
}

// Returns the error for a checkpoint that cannot be read now but may be undamaged. After this error, the job must not
// resume from an older checkpoint, because it would lose the steps in between.
inline Status unreadable_checkpoint(const std::string& path, int error) {
  const Status reason = file_error("read checkpoint", path, error);
  return Status(reason.code(), reason.message() + ". Resume again when it can be read; or move it to another folder, " +
                                   "to go on from the checkpoint before");
}

inline constexpr char kCheckpointMagic[8] = {'R', 'O', 'N', 'D', 'A', 'C', 'K', 'P'};
inline constexpr std::uint32_t kCheckpointVersion = 1;

struct CheckpointHeader {
  char magic[8];
  std::uint32_t version;
  std::uint32_t tensors;
  std::int64_t step;
  std::uint64_t extra_bytes;
};
struct CheckpointTensor {
  std::uint32_t dtype;
  std::uint32_t dimensions;
  std::uint64_t name_bytes;
};

// Writes to a file, and computes the checksum of all bytes written. Keeps the first error, and writes nothing after it.
class CheckpointWriter {
 public:
  explicit CheckpointWriter(std::FILE* file) : file_(file) {}

  void put(const void* data, std::size_t bytes) {
    if (error_ != 0 || bytes == 0) return;
    crc_.add(data, bytes);
    errno = 0;
    if (std::fwrite(data, 1, bytes, file_) != bytes) error_ = errno != 0 ? errno : EIO;
  }

  // Writes the checksum, and syncs the file to disk. Returns the error, or 0.
  int finish() {
    const std::uint32_t crc = crc_.value();
    put(&crc, sizeof(crc));
    if (error_ == 0 && (std::fflush(file_) != 0 || fsync(fileno(file_)) != 0)) error_ = errno;
    return error_;
  }

 private:
  std::FILE* const file_;
  Crc32 crc_;
  int error_ = 0;
};

inline void put_checkpoint(std::int64_t step, const std::vector<Tensor>& tensors, std::string_view extra,
                           CheckpointWriter* writer) {
  CheckpointHeader header = {{}, kCheckpointVersion, static_cast<std::uint32_t>(tensors.size()), step, extra.size()};
  std::memcpy(header.magic, kCheckpointMagic, sizeof(header.magic));
  writer->put(&header, sizeof(header));
  writer->put(extra.data(), extra.size());
  for (const Tensor& tensor : tensors) {
    const CheckpointTensor about = {static_cast<std::uint32_t>(tensor.dtype),
                                    static_cast<std::uint32_t>(tensor.shape.size()), tensor.name.size()};
    writer->put(&about, sizeof(about));
    writer->put(tensor.shape.data(), tensor.shape.size() * sizeof(tensor.shape[0]));
    writer->put(tensor.name.data(), tensor.name.size());
    writer->put(tensor.data, tensor.bytes());
  }
}

// Checks that the tensors can be saved, and sent to the other ranks when a job resumes.
inline Status check_tensors(const std::vector<Tensor>& tensors) {
  std::unordered_set<std::string_view> names;
  for (const Tensor& tensor : tensors) {
    Status status = check_elements("checkpoint: tensor", tensor);
    if (!status.ok()) return status;
    if (tensor.name.empty() || names.insert(tensor.name).second) continue;
    return invalid_argument("checkpoint: two tensors are named '" + tensor.name + "': give each its own name");
  }
  return {};
}

// Syncs the folder of `path` to disk, because a rename changes the folder.
inline int sync_folder_of(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  const int descriptor = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return errno;
  const int error = fsync(descriptor) == 0 ? 0 : errno;
  close(descriptor);
  return error;
}

// Writes the checkpoint to `path`. If writing fails, an existing file at `path` is kept. While it is being written, the
// file is called `unfinished`, in the same folder.
inline Status write_checkpoint(const std::string& path, const std::string& unfinished, std::int64_t step,
                               const std::vector<Tensor>& tensors, std::string_view extra) {
  Status status = check_tensors(tensors);
  if (!status.ok()) return status;
  int error = 0;
  {
    const File file(std::fopen(unfinished.c_str(), "wbe"));
    if (file == nullptr) return file_error("create", unfinished, errno);
    CheckpointWriter writer(file.get());
    put_checkpoint(step, tensors, extra, &writer);
    error = writer.finish();
  }
  if (error == 0 && std::rename(unfinished.c_str(), path.c_str()) != 0) error = errno;
  if (error != 0) {
    static_cast<void>(std::remove(unfinished.c_str()));
    return file_error("write", path, error);
  }
  error = sync_folder_of(path);
  return error == 0 ? Status() : file_error("sync the folder of", path, error);
}

class CheckpointReader {
 public:
  explicit CheckpointReader(std::FILE* file) : file_(file) {}

  // Reads from the file, and returns whether it had as many bytes as requested.
  bool get(void* data, std::size_t bytes) {
    errno = 0;
    return bytes == 0 || std::fread(data, 1, bytes, file_) == bytes;
  }
  bool get(std::string* text, std::uint64_t bytes) {
    text->resize(static_cast<std::size_t>(bytes));
    return get(text->data(), text->size());
  }

 private:
  std::FILE* const file_;
};

// Checks whether the file is a complete checkpoint of `step`. If it is not, `damage` describes what is wrong with it.
// Errors: RONDA_ERROR_INTERNAL with the file and the system's reason, if the file cannot be read. Such a file may
// nevertheless be complete.
inline Status check_checkpoint(const std::string& path, std::int64_t step, std::string* damage) {
  const File file(std::fopen(path.c_str(), "rbe"));
  if (file == nullptr) return unreadable_checkpoint(path, errno);
  const auto damaged = [&](const std::string& how) {
    *damage = "checkpoint " + path + " is damaged: " + how;
    return Status();
  };
  // Returns why the reader got fewer bytes than it requested.
  const auto cut = [&] { return errno == 0 ? damaged("it is too short") : unreadable_checkpoint(path, errno); };
  struct stat about;
  if (fstat(fileno(file.get()), &about) != 0) return unreadable_checkpoint(path, errno);
  CheckpointReader reader(file.get());
  CheckpointHeader header;
  std::uint32_t crc = 0;
  const auto whole = static_cast<std::uint64_t>(about.st_size);
  if (whole < sizeof(header) + sizeof(crc)) return damaged("it is too short");
  if (!reader.get(&header, sizeof(header))) return cut();
  if (std::memcmp(header.magic, kCheckpointMagic, sizeof(header.magic)) != 0) return damaged("it is no checkpoint");
  if (header.version != kCheckpointVersion) {
    return damaged("it has version " + std::to_string(header.version) + ", and this program reads version " +
                   std::to_string(kCheckpointVersion));
  }
  if (header.step != step) return damaged("it is of step " + std::to_string(header.step));
  Crc32 sum;
  sum.add(&header, sizeof(header));
  std::vector<char> block(std::size_t{1} << 20);
  for (std::uint64_t left = whole - sizeof(header) - sizeof(crc); left > 0;) {
    const std::size_t bytes = static_cast<std::size_t>(std::min<std::uint64_t>(left, block.size()));
    if (!reader.get(block.data(), bytes)) return cut();
    sum.add(block.data(), bytes);
    left -= bytes;
  }
  if (!reader.get(&crc, sizeof(crc))) return cut();
  if (crc != sum.value()) return damaged("its checksum does not match");
  return {};
}

inline std::string shape_text(const std::vector<std::int64_t>& shape) {
  std::string text;
  for (const std::int64_t dimension : shape) text += (text.empty() ? "" : ", ") + std::to_string(dimension);
  return "[" + text + "]";
}

// Reads the description of the next tensor, which must match `tensor`.
inline Status match_tensor(const std::string& path, const Tensor& tensor, CheckpointReader* reader) {
  const auto cut = [&] { return unreadable_checkpoint(path, errno); };
  CheckpointTensor about;
  if (!reader->get(&about, sizeof(about))) return cut();
  std::vector<std::int64_t> shape(about.dimensions);
  std::string name;
  if (!reader->get(shape.data(), shape.size() * sizeof(shape[0])) || !reader->get(&name, about.name_bytes))
    return cut();
  if (name != tensor.name) {
    return invalid_argument("checkpoint " + path + " has tensor '" + name + "' where the program has '" + tensor.name +
                            "'");
  }
  if (shape != tensor.shape || about.dtype != static_cast<std::uint32_t>(tensor.dtype)) {
    return invalid_argument("checkpoint " + path + " has tensor '" + name + "' with shape " + shape_text(shape) +
                            " and dtype " + std::to_string(about.dtype) + ", the program with " +
                            shape_text(tensor.shape) + " and " + std::to_string(tensor.dtype));
  }
  return {};
}

// Reads a checkpoint that check_checkpoint() has accepted. Compares all tensors of the file with `tensors` before it
// changes any of them.
inline Status read_checkpoint(const std::string& path, const std::vector<Tensor>& tensors, std::string* extra) {
  Status status = check_tensors(tensors);
  if (!status.ok()) return status;
  const File file(std::fopen(path.c_str(), "rbe"));
  if (file == nullptr) return unreadable_checkpoint(path, errno);
  CheckpointReader reader(file.get());
  CheckpointHeader header;
  if (!reader.get(&header, sizeof(header)) || !reader.get(extra, header.extra_bytes)) {
    return unreadable_checkpoint(path, errno);
  }
  if (header.tensors != tensors.size()) {
    return invalid_argument("checkpoint " + path + " has " + std::to_string(header.tensors) +
                            " tensors, and the program " + std::to_string(tensors.size()));
  }
  const long begin = std::ftell(file.get());
  for (const Tensor& tensor : tensors) {
    status = match_tensor(path, tensor, &reader);
    if (!status.ok()) return status;
    if (std::fseek(file.get(), static_cast<long>(tensor.bytes()), SEEK_CUR) != 0)
      return unreadable_checkpoint(path, errno);
  }
  if (std::fseek(file.get(), begin, SEEK_SET) != 0) return unreadable_checkpoint(path, errno);
  for (const Tensor& tensor : tensors) {
    status = match_tensor(path, tensor, &reader);
    if (!status.ok()) return status;
    if (!reader.get(tensor.data, tensor.bytes())) return unreadable_checkpoint(path, errno);
  }
  return {};
}

}  // namespace detail
}  // namespace abi1
}  // namespace ronda

#endif  // RONDA_CLIENT_RONDA_TRAINING_CHECKPOINT_FILE_HPP_
