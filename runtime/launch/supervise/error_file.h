#ifndef RONDA_RUNTIME_LAUNCH_SUPERVISE_ERROR_FILE_H_
#define RONDA_RUNTIME_LAUNCH_SUPERVISE_ERROR_FILE_H_

#include <string>

#include "runtime/base/unique_fd.h"

namespace ronda {

// A file in memory that a rank inherits. In it the rank leaves the error that ends it, as a line of text, and the
// launcher reads that when the rank has ended. Ronda's Python package does so (client/python/ronda/_last_error.py): it
// knows which exception ends the process, and the launcher can only guess that from the output (LastError).
//
// The rank looks for the file by its name among its descriptors. It needs no variable, which processes would inherit
// that have not got the descriptor.
//
// Thread-compatible.
class ErrorFile {
 public:
  static constexpr char kName[] = "ronda-error";  // "/memfd:ronda-error (deleted)" in /proc
  static constexpr size_t kMaxBytes = 4096;       // that are read

  // There is none if the system has no descriptor left: the job goes on without it.
  ErrorFile();

  int fd() const { return fd_.get(); }  // -1: there is none

  // The first line, without characters that a terminal would obey; empty if the rank has left none.
  std::string Read() const;

 private:
  UniqueFd fd_;
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_LAUNCH_SUPERVISE_ERROR_FILE_H_
