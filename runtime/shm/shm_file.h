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

// A memory mapping, which may be shared with other processes. The destructor unmaps it.
class ShmMapping {
 public:
  // Returns zeroed memory that is not shared with any other process. Errors: RESOURCE_EXHAUSTED.
  static absl::StatusOr<std::shared_ptr<ShmMapping>> Anonymous(size_t bytes);

  ShmMapping(void* base, size_t bytes, UniqueFd file) : base_(base), bytes_(bytes), file_(std::move(file)) {}
  ~ShmMapping();
  ShmMapping(const ShmMapping&) = delete;
  ShmMapping& operator=(const ShmMapping&) = delete;

  // Makes the destructor leave the memory mapped. No other function may be called afterwards.
  void Abandon() { base_ = nullptr; }

  void* base() const { return base_; }
  size_t bytes() const { return bytes_; }

  // Returns the descriptor of the mapped file, or -1 if there is none. The user's other processes find the file through
  // this descriptor (RankWords).
  int descriptor() const { return file_.get(); }

 private:
  void* base_;
  const size_t bytes_;
  const UniqueFd file_;
};

// An unnamed file of shared memory. Only this user's processes can open it, through the links in /proc/PID/fd.
//
// Thread-compatible.
class ShmFile {
 public:
  ShmFile() = default;

  // Creates an empty file: a memfd if `folder` is empty, otherwise an unlinked file in `folder`. Its links in
  // /proc/PID/fd show a path that ends in `name` ("/ronda-j"), which " (deleted)" may follow. Returns 0 or an errno.
  int Create(const std::string& folder, const std::string& name);

  // Opens another process's file through `path`, its link in that process's /proc/PID/fd.
  // Errors: NOT_FOUND if the process has no such file; PERMISSION_DENIED if the system does not let this process open
  // that process's files, or if the file belongs to another user or has a name; other system errors.
  static absl::StatusOr<ShmFile> Open(const std::string& path);

  // Allocates `bytes` zero bytes of physical memory, so that later accesses cannot raise SIGBUS. Fixes the size of a
  // memfd. Returns 0, or an errno and leaves the file empty. The errno is EFBIG if the size exceeds this process's file
  // size limit; others come from the system.
  int Allocate(size_t bytes) const;

  // Returns the current size of the file.
  size_t Size() const;

  int descriptor() const { return fd_.get(); }

  // Errors: RESOURCE_EXHAUSTED.
  absl::StatusOr<std::shared_ptr<ShmMapping>> Map(size_t bytes) const;

 private:
  explicit ShmFile(UniqueFd fd) : fd_(std::move(fd)) {}

  UniqueFd fd_;
};

// Returns text such as "/dev/shm has 65536 bytes available" or, for an empty `folder`, "this host has 65536 bytes of
// memory available".
std::string DescribeFree(const std::string& folder);

}  // namespace ronda

#endif  // RONDA_RUNTIME_SHM_SHM_FILE_H_
