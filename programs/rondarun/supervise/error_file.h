// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_PROGRAMS_RONDARUN_SUPERVISE_ERROR_FILE_H_
#define RONDA_PROGRAMS_RONDARUN_SUPERVISE_ERROR_FILE_H_

#include <string>

#include "runtime/base/unique_fd.h"

namespace ronda {

// A file in memory that a rank inherits. The rank writes the error that ends it there, as one line of text, and the
// launcher reads the line when the rank has ended. Ronda's Python package does this
// (client/python/ronda/_last_error.py), because it knows which exception ends the process. From the output alone the
// launcher can only guess (LastError).
//
// The rank finds the file by its name among its descriptors. It needs no environment variable. Other processes would
// inherit a variable, but not the descriptor.
//
// Thread-compatible.
class ErrorFile {
 public:
  static constexpr char kName[] = "ronda-error";  // "/memfd:ronda-error (deleted)" in /proc
  static constexpr size_t kMaxBytes = 4096;       // the most that are read

  // Without a free descriptor there is no file, and the job goes on.
  ErrorFile();

  int fd() const { return fd_.get(); }  // -1: no file

  // The first line, without characters that control a terminal. Empty if the rank has left no line.
  std::string Read() const;

 private:
  UniqueFd fd_;
};

}  // namespace ronda

#endif  // RONDA_PROGRAMS_RONDARUN_SUPERVISE_ERROR_FILE_H_
