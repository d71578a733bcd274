// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_RUNTIME_BASE_WAKE_PIPE_H_
#define RONDA_RUNTIME_BASE_WAKE_PIPE_H_

#include <sys/types.h>

#include <utility>

#include "absl/status/statusor.h"
#include "runtime/base/unique_fd.h"

namespace ronda {

// A pipe with which one thread wakes another from poll(). Some programs close descriptors that they did not open
// (closefrom), and later files may get the same descriptor numbers. WakePipe detects that its descriptors now refer to
// other files, and neither writes to those files nor closes them.
//
// Thread-compatible, except Wake and IsIntact, which are thread-safe.
class WakePipe {
 public:
  // Errors: RESOURCE_EXHAUSTED with the system's error text.
  static absl::StatusOr<WakePipe> Create();
  WakePipe(WakePipe&& other) = default;
  WakePipe& operator=(WakePipe&& other) = delete;
  ~WakePipe();

  // Returns the descriptor to poll. It is readable from a call to Wake() until the next call to Clear().
  int reader() const { return reader_.get(); }
  void Wake() const;
  void Clear() const;

  // Returns false if the program has closed the pipe. It has then probably closed all other descriptors too.
  bool IsIntact() const;

 private:
  WakePipe(UniqueFd reader, UniqueFd writer, ino_t inode)
      : reader_(std::move(reader)), writer_(std::move(writer)), inode_(inode) {}

  UniqueFd reader_;
  UniqueFd writer_;
  ino_t inode_;
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_BASE_WAKE_PIPE_H_
