#ifndef RONDA_RUNTIME_LAUNCH_STANDARD_OUTPUT_H_
#define RONDA_RUNTIME_LAUNCH_STANDARD_OUTPUT_H_

#include <array>

#include "runtime/launch/output_queue.h"
#include "runtime/launch/stream.h"

namespace ronda {

// The launcher's own stdout and stderr, and what they lead to.
//
// Thread-compatible.
class StandardOutput {
 public:
  StandardOutput();

  Medium medium(Stream stream) const { return media_[static_cast<size_t>(stream)]; }

  // Where to append what goes to `stream`. Both streams have the same queue if they lead to the same terminal: what is
  // written there must keep its order.
  OutputQueue* queue(Stream stream) { return stream == Stream::kStdout || one_terminal_ ? &out_ : &err_; }

  bool empty() const { return out_.pending().empty() && err_.pending().empty(); }

 private:
  const std::array<Medium, kStreamCount> media_;
  const bool one_terminal_;
  OutputQueue out_;
  OutputQueue err_;
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_LAUNCH_STANDARD_OUTPUT_H_
