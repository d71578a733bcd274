#ifndef RONDA_RUNTIME_SHM_SHM_ATTACH_H_
#define RONDA_RUNTIME_SHM_SHM_ATTACH_H_

#include <cstddef>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "runtime/base/peer.h"
#include "runtime/shm/layout.h"

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

struct ShmAttachOptions {
  std::string name;  // of the shared memory: "/ronda-<job id>"
  Peer self;
  ShmGeometry geometry;  // valid, and the same on every rank
  absl::Duration timeout = absl::Seconds(30);
  absl::Duration refusal_time = absl::Seconds(1);  // for which rank 0 lets the others read why it gave up
};

// Brings the ranks of one host together in one piece of shared memory. Rank 0 creates it; the others wait for it, check
// what they find, and enter their pid; once all have, the name is removed, so that nothing remains when they are
// killed. When it returns, all ranks have attached.
//
// Errors, with the same reason on every rank where there is memory left to tell it: RESOURCE_EXHAUSTED if /dev/shm is
// full; DEADLINE_EXCEEDED naming the ranks that are missing; ALREADY_EXISTS if another job has the name or another
// process the rank; FAILED_PRECONDITION if what was found is not of this job's version and sizes; UNAVAILABLE if rank 0
// died.
absl::StatusOr<std::shared_ptr<ShmMapping>> AttachAllRanks(const ShmAttachOptions& options);

// The same for ranks that are threads of this process and share one mapping.
absl::StatusOr<std::shared_ptr<ShmMapping>> AttachAllRanksInProcess(const ShmGeometry& geometry);

// Whether the ranks together may run on so many cores that one can spin without keeping another from its work.
bool HasCoreForEachRank(const ShmView& view);

}  // namespace ronda

#endif  // RONDA_RUNTIME_SHM_SHM_ATTACH_H_
