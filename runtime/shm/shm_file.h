#ifndef RONDA_RUNTIME_SHM_SHM_FILE_H_
#define RONDA_RUNTIME_SHM_SHM_FILE_H_

#include <cstddef>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace ronda {

// Memory mapped into this process, possibly also into others; unmapped by the destructor.
class ShmMapping {
 public:
  // Zeroed memory that only this process has.
  // Errors: RESOURCE_EXHAUSTED.
  static absl::StatusOr<std::shared_ptr<ShmMapping>> Anonymous(size_t bytes);

  ShmMapping(void* base, size_t bytes) : base_(base), bytes_(bytes) {}
  ~ShmMapping();
  ShmMapping(const ShmMapping&) = delete;
  ShmMapping& operator=(const ShmMapping&) = delete;

  void* base() const { return base_; }

 private:
  void* const base_;
  const size_t bytes_;
};

// A file under /dev/shm, readable and writable by this user only.
//
// Thread-compatible. The destructor closes it; it does not remove it.
class ShmFile {
 public:
  // `name` as shm_open(3) wants it, "/ronda-...".
  // Errors: ALREADY_EXISTS; PERMISSION_DENIED and others as the system says.
  static absl::StatusOr<ShmFile> Create(const std::string& name);
  // Errors: NOT_FOUND; PERMISSION_DENIED and others as the system says.
  static absl::StatusOr<ShmFile> Open(const std::string& name);

  ShmFile(ShmFile&& other) noexcept;
  ShmFile& operator=(ShmFile&&) = delete;
  ~ShmFile();

  // Gives the file `bytes` zero bytes that are really there: no SIGBUS later.
  // Errors: RESOURCE_EXHAUSTED that says how much there is, how much is needed, and what to do.
  absl::Status Allocate(size_t bytes);

  // The file's size as it is now.
  size_t Size() const;

  // Errors: RESOURCE_EXHAUSTED.
  absl::StatusOr<std::shared_ptr<ShmMapping>> Map(size_t bytes) const;

  // Tells those who open the file that its creator gave up because of `error_number` (an errno). That is all the
  // file can say when there is no memory for any content: its size.
  void Refuse(int error_number) const;
  // The error number of Refuse; 0 if it was not called.
  int RefusedWith() const;

  // Removes the name, unless it means another file by now.
  void Unlink() const;

 private:
  ShmFile(std::string name, int fd) : name_(std::move(name)), fd_(fd) {}

  std::string name_;
  int fd_;
};

// "/dev/shm has 65536 bytes available"
std::string DescribeFreeShm();

}  // namespace ronda

#endif  // RONDA_RUNTIME_SHM_SHM_FILE_H_
