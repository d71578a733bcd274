// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_RUNTIME_SHM_SHM_FILE_H_
#define RONDA_RUNTIME_SHM_SHM_FILE_H_

#include <cstddef>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "runtime/base/unique_fd.h"

namespace ronda {

// Memory mapped into this process, and possibly into others; the destructor unmaps it.
class ShmMapping {
 public:
  // Zeroed memory of this process alone. Errors: RESOURCE_EXHAUSTED.
  static absl::StatusOr<std::shared_ptr<ShmMapping>> Anonymous(size_t bytes);

  ShmMapping(void* base, size_t bytes, UniqueFd file) : base_(base), bytes_(bytes), file_(std::move(file)) {}
  ~ShmMapping();
  ShmMapping(const ShmMapping&) = delete;
  ShmMapping& operator=(const ShmMapping&) = delete;

  void* base() const { return base_; }
  size_t bytes() const { return bytes_; }

  // The descriptor of the mapped file, which has no name any more. Other processes of the user find the file through it
  // (RankWords). -1: none.
  int descriptor() const { return file_.get(); }

 private:
  void* const base_;
  const size_t bytes_;
  const UniqueFd file_;
};

// A file of shared memory that only this user can read and write.
//
// Thread-compatible. The destructor closes the file and does not remove it.
class ShmFile {
 public:
  // Errors: ALREADY_EXISTS; others from the system.
  static absl::StatusOr<ShmFile> Create(const std::string& path);
  // Errors: NOT_FOUND if this user can see no such file; PERMISSION_DENIED if others can access the file; others from
  // the system.
  static absl::StatusOr<ShmFile> Open(const std::string& path);

  // Allocates `bytes` zero bytes of real memory, so that no access raises SIGBUS later. Returns 0; or an errno, and
  // then the file is empty. EFBIG if the process may not have files of this size; others from the system.
  int Allocate(size_t bytes) const;

  // The current size.
  size_t Size() const;

  // The time since the content was last changed by a system call.
  absl::Duration Age() const;

  // Whether the file is still open in the process that created it, or in a child that this process has forked since.
  bool HasCreator() const;

  // Errors: RESOURCE_EXHAUSTED.
  absl::StatusOr<std::shared_ptr<ShmMapping>> Map(size_t bytes) const;

  // Tells the processes that open the file that its creator gave up because of `error_number` (an errno). The file's
  // size carries the number, because there may be no memory for any content.
  void Refuse(int error_number) const;
  // The error number of Refuse; 0 if it was not called.
  int RefusedWith() const;

  // Removes the name, unless it now means another file.
  void Unlink() const;

 private:
  ShmFile(std::string path, UniqueFd fd) : path_(std::move(path)), fd_(std::move(fd)) {}

  std::string path_;
  UniqueFd fd_;
};

// "/dev/shm has 65536 bytes available"
std::string DescribeFree(const std::string& folder);

}  // namespace ronda

#endif  // RONDA_RUNTIME_SHM_SHM_FILE_H_
