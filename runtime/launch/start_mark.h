// How the launcher learns of ranks that others start for it that they have started.
#ifndef RONDA_RUNTIME_LAUNCH_START_MARK_H_
#define RONDA_RUNTIME_LAUNCH_START_MARK_H_

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/string_view.h"

namespace ronda {

// `command`, led by a shell that prints a mark on stderr, with its process id, and then becomes the command. So any
// program can be seen to start, whatever it uses and prints.
std::vector<std::string> WithStartMark(const std::vector<std::string>& command);

// Takes the mark out of what one rank prints on one stream, where it is the first line if it is there at all.
//
// Thread-compatible.
class StartMarkReader {
 public:
  using Emit = absl::FunctionRef<void(absl::string_view bytes)>;

  // Takes the next bytes, and emits those that are the rank's own.
  void Feed(absl::string_view bytes, Emit emit);

  // There are no more: what could have become the mark is the rank's own.
  void Finish(Emit emit);

  // Once the mark was there.
  std::optional<pid_t> pid() const { return pid_; }

 private:
  std::string held_;  // the beginning of what may be the mark
  std::optional<pid_t> pid_;
  enum class State { kFirstLine, kRest } state_ = State::kFirstLine;
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_LAUNCH_START_MARK_H_
