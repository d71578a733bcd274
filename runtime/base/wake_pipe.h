// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_RUNTIME_BASE_WAKE_PIPE_H_
#define RONDA_RUNTIME_BASE_WAKE_PIPE_H_

#include <sys/types.h>

#include <utility>

#include "absl/status/statusor.h"
#include "runtime/base/unique_fd.h"

namespace ronda {

// A pipe with which a thread ends the poll() of another thread. A program may close descriptors that it did not open
// (closefrom). Files that the program opens later may then get the numbers of the closed descriptors. If such a file
// has got the number of the pipe's descriptor, the WakePipe notices this. The WakePipe then neither writes to the
// program's file nor closes the file.
//
// Thread-compatible, except Wake and IsIntact, which are thread-safe.
class WakePipe {
 public:
  // Errors: RESOURCE_EXHAUSTED with the system's text.
  static absl::StatusOr<WakePipe> Create();
  WakePipe(WakePipe&& other) = default;
  WakePipe& operator=(WakePipe&& other) = delete;
  ~WakePipe();

  // Returns the descriptor for poll(). The descriptor is readable after Wake, until Clear is called.
  int reader() const { return reader_.get(); }
  void Wake() const;
  void Clear() const;

  // Returns false if the program has closed the pipe, and probably all other descriptors.
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
