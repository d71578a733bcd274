#ifndef RONDA_RUNTIME_SHM_SHM_ATTACH_H_
#define RONDA_RUNTIME_SHM_SHM_ATTACH_H_

#include <cstddef>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "runtime/base/peer.h"
#include "runtime/base/unique_fd.h"
#include "runtime/shm/layout.h"

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

  // The file that is mapped: by this descriptor other processes of the user find it, which has no name any more
  // (RankWords). -1: none.
  int descriptor() const { return file_.get(); }

 private:
  void* const base_;
  const size_t bytes_;
  const UniqueFd file_;
};

// A file under /dev/shm that only this user can read and write.
//
// Thread-compatible. The destructor closes the file and does not remove it.
class ShmFile {
 public:
  // `name` has the form that shm_open(3) takes: "/ronda-...". Errors: ALREADY_EXISTS; PERMISSION_DENIED and others from
  // the system.
  static absl::StatusOr<ShmFile> Create(const std::string& name);
  // Errors: NOT_FOUND; PERMISSION_DENIED if the file is not this user's alone; others from the system.
  static absl::StatusOr<ShmFile> Open(const std::string& name);

  ShmFile(ShmFile&& other) noexcept;
  ShmFile& operator=(ShmFile&&) = delete;
  ~ShmFile();

  // Allocates `bytes` zero bytes of real memory, so that no access raises SIGBUS later. Returns 0, or an errno and the
  // file is empty.
  int Allocate(size_t bytes) const;

  // The current size.
  size_t Size() const;

  // Since the content was changed by a system call.
  absl::Duration Age() const;

  // Whether the process that has made the file, or a child that it has forked since, still has it open.
  bool HasCreator() const;

  // Errors: RESOURCE_EXHAUSTED.
  absl::StatusOr<std::shared_ptr<ShmMapping>> Map(size_t bytes) const;

  // Tells the processes that open the file that its creator gave up because of `error_number` (an errno). It does so by
  // the file's size, because there may be no memory for any content.
  void Refuse(int error_number) const;
  // The error number of Refuse; 0 if it was not called.
  int RefusedWith() const;

  // Removes the name, unless it now means another file.
  void Unlink() const;

 private:
  ShmFile(std::string name, int fd) : name_(std::move(name)), fd_(fd) {}

  std::string name_;
  int fd_;
};

// "/dev/shm has 65536 bytes available"
std::string DescribeFreeShm();

struct ShmAttachOptions {
  std::string job_id;
  int64_t epoch = 0;  // of the job
  Peer self;
  ShmGeometry geometry;  // valid; the same on every rank. Of the slots' bytes there may be fewer
  absl::Duration timeout = absl::Seconds(30);
  absl::Duration refusal_time = absl::Seconds(1);  // the time that the other ranks get to read why rank 0 gave up
};

struct ShmAttached {
  std::shared_ptr<ShmMapping> mapping;
  ShmGeometry geometry;  // of the mapping
};

// Brings the ranks of one host together in one piece of shared memory. Rank 0 creates it, with smaller slots and a
// warning if /dev/shm has no room for those wanted. The others wait for it, check
// it, and enter their pid. When all have attached, the name is removed, so that nothing remains if the ranks are
// killed, and the call returns.
//
// Errors, with the same reason on every rank if there is memory to tell it: RESOURCE_EXHAUSTED if /dev/shm has no room
// for the smallest slots; DEADLINE_EXCEEDED that names the missing ranks; ALREADY_EXISTS if another job has the name or
// another process has the rank; FAILED_PRECONDITION if the memory is of another version or size, or if other processes
// are in a later epoch of the job already; UNAVAILABLE if rank 0 died.
absl::StatusOr<ShmAttached> AttachAllRanks(const ShmAttachOptions& options);

// AttachAllRanks for ranks that are threads of this process and share one mapping.
absl::StatusOr<std::shared_ptr<ShmMapping>> AttachAllRanksInProcess(const ShmGeometry& geometry);

// Whether the ranks together may use at least as many cores as there are ranks, so that a spinning rank takes no other
// rank's core.
bool HasCoreForEachRank(const ShmView& view);

}  // namespace ronda

#endif  // RONDA_RUNTIME_SHM_SHM_ATTACH_H_
