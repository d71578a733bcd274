// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_RUNTIME_SHM_SHM_FILE_H_
#define RONDA_RUNTIME_SHM_SHM_FILE_H_

#include <cstddef>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "runtime/base/unique_fd.h"

namespace ronda {

// Memory that is mapped into this process. Other processes may map the same memory. The destructor unmaps the memory.
class ShmMapping {
 public:
  // Returns memory that contains zeros and that no other process shares. Errors: RESOURCE_EXHAUSTED.
  static absl::StatusOr<std::shared_ptr<ShmMapping>> Anonymous(size_t bytes);

  ShmMapping(void* base, size_t bytes, UniqueFd file) : base_(base), bytes_(bytes), file_(std::move(file)) {}
  ~ShmMapping();
  ShmMapping(const ShmMapping&) = delete;
  ShmMapping& operator=(const ShmMapping&) = delete;

  // The destructor leaves the memory mapped. No other function may be called afterwards.
  void Abandon() { base_ = nullptr; }

  void* base() const { return base_; }
  size_t bytes() const { return bytes_; }

  // Returns the descriptor of the mapped file, or -1 if there is none. Other processes of the user find the mapped file
  // through this descriptor (RankWords).
  int descriptor() const { return file_.get(); }

 private:
  void* base_;
  const size_t bytes_;
  const UniqueFd file_;
};

// A nameless file with shared memory. Only processes of this user can open it, through the links in /proc/PID/fd.
//
// Thread-compatible.
class ShmFile {
 public:
  ShmFile() = default;

  // Creates and opens an empty file. If `folder` is empty, the file is a memfd, in the memory of the kernel. If a
  // folder is given, the file is in the file system of `folder`. The links in /proc/PID/fd show a path that ends in
  // `name` ("/ronda-j"), perhaps before " (deleted)". Returns 0, or an errno.
  int Create(const std::string& folder, const std::string& name);

  // Opens a file of another process. `path` is the link to the file in that process' /proc/PID/fd.
  // Errors: NOT_FOUND if the process has no such file; PERMISSION_DENIED if other processes may not open the process'
  // files, or if the file belongs to another user or has a name; other errors of the system.
  static absl::StatusOr<ShmFile> Open(const std::string& path);

  // Allocates real memory for `bytes` zero bytes. Later accesses can then raise no SIGBUS. After the call of Allocate,
  // a memfd can no longer change its size. Returns 0, or an errno, after which the file is empty. The errno is EFBIG if
  // the process may not have files of this size; other errors come from the system.
  int Allocate(size_t bytes) const;

  // Returns the present size of the file.
  size_t Size() const;

  int descriptor() const { return fd_.get(); }

  // Errors: RESOURCE_EXHAUSTED.
  absl::StatusOr<std::shared_ptr<ShmMapping>> Map(size_t bytes) const;

 private:
  explicit ShmFile(UniqueFd fd) : fd_(std::move(fd)) {}

  UniqueFd fd_;
};

// Returns, for example, "/dev/shm has 65536 bytes available". For an empty `folder`, returns "this host has 65536 bytes
// of memory available".
std::string DescribeFree(const std::string& folder);

}  // namespace ronda

#endif  // RONDA_RUNTIME_SHM_SHM_FILE_H_
