#ifndef RONDA_RUNTIME_MONITOR_TIMELINE_TRACE_FILE_H_
#define RONDA_RUNTIME_MONITOR_TIMELINE_TRACE_FILE_H_

#include <cstddef>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "runtime/base/types.h"

namespace ronda {

// A file that holds a JSON array whenever somebody looks, and to which elements are added: each call writes, at once,
// the new elements, an end that the next call replaces, and the closing bracket, over the end and the bracket before.
// Spaces cover what is left of a longer end. A process that is killed leaves it so, unless the kernel is in the middle
// of copying that very write; then the closing bracket is missing, without which viewers do.
//
// Thread-compatible. Owns the open file.
class TraceFile {
 public:
  // Replaces what is at `path`. `most_bytes`: what the file does not grow beyond.
  // Errors: that of the operating system, with the path.
  static absl::StatusOr<std::unique_ptr<TraceFile>> Create(const std::string& path, size_t most_bytes);
  ~TraceFile();

  const std::string& path() const { return path_; }

  // How many bytes of elements and end may still be added, if something of kReserve bytes is to fit besides.
  static constexpr size_t kReserve = 1024;
  size_t room() const { return most_bytes_ > size_ + kReserve ? most_bytes_ - size_ - kReserve : 0; }

  // Adds `elements`, and `end` for the time being. Both are texts of JSON values with a comma between, also between the
  // two; so `end` begins with one.
  // Errors: that of the operating system, with the path.
  absl::Status Write(absl::string_view elements, absl::string_view end);

 private:
  TraceFile(std::string path, int fd, size_t most_bytes) : path_(std::move(path)), fd_(fd), most_bytes_(most_bytes) {}

  const std::string path_;
  const int fd_;
  const size_t most_bytes_;
  size_t size_ = 0;   // without the end
  size_t reach_ = 0;  // with it
  std::string text_;  // kept for its memory
};

// `path` with the rank before its extension: "trace.json" becomes "trace.rank3.json".
std::string PathOfRank(absl::string_view path, RankId rank);

}  // namespace ronda

#endif  // RONDA_RUNTIME_MONITOR_TIMELINE_TRACE_FILE_H_
