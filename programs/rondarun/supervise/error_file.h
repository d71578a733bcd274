// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_PROGRAMS_RONDARUN_SUPERVISE_ERROR_FILE_H_
#define RONDA_PROGRAMS_RONDARUN_SUPERVISE_ERROR_FILE_H_

#include <string>

#include "runtime/base/unique_fd.h"

namespace ronda {

// A file in memory that a rank inherits. If an error ends the rank, the rank writes the error to this file as one line
// of text. The launcher reads the line when the rank has ended. The writer is Ronda's Python package
// (client/python/ronda/_last_error.py), because Python knows which exception ends the process. From the rank's output,
// the launcher could only guess the error (LastError).
//
// The rank finds the file by its name among its own descriptors. No environment variable names the file, because
// processes that the rank starts would inherit the variable, but not the descriptor.
//
// Thread-compatible.
class ErrorFile {
 public:
  static constexpr char kName[] = "ronda-error";  // "/memfd:ronda-error (deleted)" in /proc
  static constexpr size_t kMaxBytes = 4096;       // the most that are read

  // If no descriptor is free, the constructor makes no file. The job goes on without the file.
  ErrorFile();

  int fd() const { return fd_.get(); }  // -1: no file

  // Returns the file's first line, without characters that control a terminal. Empty if the rank has written no line.
  std::string Read() const;

 private:
  UniqueFd fd_;
};

}  // namespace ronda

#endif  // RONDA_PROGRAMS_RONDARUN_SUPERVISE_ERROR_FILE_H_
