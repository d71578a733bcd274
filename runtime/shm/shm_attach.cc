#include "runtime/shm/shm_attach.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "runtime/base/clock.h"
#include "runtime/base/logging.h"
#include "runtime/base/status_macros.h"
#include "runtime/monitor/peer_monitor.h"
#include "runtime/shm/epoch_search.h"

namespace ronda {
namespace {

constexpr char kShmDirectory[] = "/dev/shm";
// A size below a page means an errno (see Refuse) and no content.
constexpr size_t kLargestRefusal = 4095;

absl::Status FileError(absl::string_view what, const std::string& name, int error_number) {
  return absl::ErrnoToStatus(error_number, absl::StrCat("cannot ", what, " ", kShmDirectory, name));
}

absl::StatusOr<std::shared_ptr<ShmMapping>> MapOrError(size_t bytes, int flags, int fd) {
  void* const base = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags, fd, 0);
  if (base == MAP_FAILED) {
    return absl::ResourceExhaustedError(absl::StrCat("cannot map ", bytes, " bytes: ", std::strerror(errno)));
  }
  // Without a descriptor to spare the job runs, and nobody sees its recorders.
  return std::make_shared<ShmMapping>(base, bytes, UniqueFd(fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, 0)));
}

constexpr absl::Duration kOpenInterval = absl::Milliseconds(1);
constexpr absl::Duration kAliveCheckInterval = absl::Milliseconds(50);

// `wanted` has larger slots than the memory where there is no room for these.
void InitializeHeader(const ShmView& view, const ShmGeometry& wanted) {
  const ProcessId self = ThisProcess();
  const ShmGeometry& geometry = view.geometry();
  ShmHeader& header = view.header();
  header.layout_version = kShmLayoutVersion;
  header.creator_pid = self.pid;
  header.creator_start_time = self.start_time;
  header.total_bytes = ShmView::TotalBytes(wanted);
  header.slot_bytes = geometry.slot_bytes;
  header.size = static_cast<uint32_t>(geometry.size);
  header.slot_count = static_cast<uint32_t>(geometry.slot_count);
  header.magic.store(kShmMagic, std::memory_order_release);
}

ProcessId CreatorOf(const ShmHeader& header) {
  return {.pid = header.creator_pid, .start_time = header.creator_start_time};
}

void AddOwnCpus(ShmHeader& header) {
  uint64_t words[kShmCpuMaskWords] = {};
  static_assert(sizeof(words) == sizeof(cpu_set_t));
  cpu_set_t mask;
  if (sched_getaffinity(0, sizeof(mask), &mask) != 0) return;
  std::memcpy(words, &mask, sizeof(words));
  for (int i = 0; i < kShmCpuMaskWords; ++i) header.cpus[i].fetch_or(words[i], std::memory_order_relaxed);
}

// Registers this process as `rank`. Errors: ALREADY_EXISTS.
absl::Status Claim(const ShmView& view, RankId rank) {
  ShmRankBlock& block = view.rank(rank);
  if (block.claimed.exchange(1, std::memory_order_acq_rel) != 0) {
    return absl::AlreadyExistsError(
        absl::StrCat("rank ", rank, " has already been taken by the process with pid ", block.pid.load()));
  }
  const ProcessId self = ThisProcess();
  block.pid.store(self.pid, std::memory_order_relaxed);
  block.start_time.store(self.start_time, std::memory_order_relaxed);
  AddOwnCpus(view.header());
  block.attached.store(1, std::memory_order_release);
  view.header().attached.fetch_add(1, std::memory_order_acq_rel);
  FutexWake(view.header().attached);
  return absl::OkStatus();
}

std::string MissingRanks(const ShmView& view) {
  std::vector<RankId> missing;
  for (RankId rank = 0; rank < view.geometry().size; ++rank) {
    if (view.rank(rank).attached.load(std::memory_order_acquire) == 0) missing.push_back(rank);
  }
  return absl::StrCat(missing.size() == 1 ? "rank " : "ranks ", absl::StrJoin(missing, ", "), " of ",
                      view.geometry().size);
}

// Whether nobody waits for ranks to attach any more. A creator may have made the file and not yet locked it, if that is
// younger than `may_be_new`. False in doubt: another container may have the creator's pid.
bool IsLeftover(const ShmFile& file, absl::Duration may_be_new) {
  if (file.HasCreator()) return false;
  const bool is_new = file.Age() <= may_be_new;
  if (file.Size() < kShmPageBytes) return !is_new;
  const absl::StatusOr<std::shared_ptr<ShmMapping>> page = file.Map(kShmPageBytes);
  if (!page.ok()) return false;
  const ShmHeader& header = *static_cast<const ShmHeader*>((*page)->base());
  const bool is_prepared = header.magic.load(std::memory_order_acquire) == kShmMagic;
  return is_prepared ? !IsAlive(CreatorOf(header)) : !is_new;
}

// Removes what this user's jobs have left that were killed while their ranks came together.
void RemoveLeftovers(const std::string& job_id, int64_t epoch) {
  std::error_code error;
  for (std::filesystem::directory_iterator it(kShmDirectory, error), end; !error && it != end; it.increment(error)) {
    const std::string name = "/" + it->path().filename().string();
    if (!absl::StartsWith(name, ShmNameOf("", 0))) continue;
    const absl::StatusOr<ShmFile> file = ShmFile::Open(name);
    // Nobody makes a file of an earlier epoch of this job any more.
    const std::optional<int64_t> its_epoch = EpochInLink(it->path().string(), job_id);
    const bool is_past = its_epoch.has_value() && *its_epoch < epoch;
    const absl::Duration may_be_new = is_past ? -absl::InfiniteDuration() : absl::Minutes(1);
    if (file.ok() && IsLeftover(*file, may_be_new)) file->Unlink();
  }
}

class Attachment {
 public:
  explicit Attachment(const ShmAttachOptions& options)
      : options_(options),
        geometry_(options.geometry),
        name_(ShmNameOf(options.job_id, options.epoch)),
        deadline_(SteadyNow() + options.timeout),
        epochs_(options.job_id, options.epoch, SteadyNow()) {}

  absl::StatusOr<std::shared_ptr<ShmMapping>> AsCreator();
  absl::StatusOr<std::shared_ptr<ShmMapping>> AsJoiner();
  const ShmGeometry& geometry() const { return geometry_; }

 private:
  absl::StatusOr<ShmFile> CreateFile();
  // Takes the memory, with smaller slots if there is not enough. Sets geometry_.
  absl::Status Allocate(const ShmFile& file);
  absl::Status WaitForAllToAttach(const ShmView& view);

  // Returns the job's memory once its creator has prepared it, and nullptr before that.
  absl::StatusOr<std::shared_ptr<ShmMapping>> TryToJoin();
  absl::Status CheckOrigin(const ShmHeader& header) const;
  absl::Status CheckSizes(const ShmFile& file, ShmHeader& header);
  absl::Status WaitUntilRunning(const ShmView& view);

  // Makes `failure` the reason for which all other ranks give up too.
  absl::Status FailAll(ShmHeader& header, const absl::Status& failure);

  bool IsLate() const { return SteadyNow() >= deadline_; }

  // Whether this rank still has a job to wait for: an error if others are in a later epoch of it.
  absl::Status CheckEpoch();
  // For the error of a rank that has waited in vain: that others are in another epoch; or nothing.
  std::string DescribeOtherEpoch() const;

  const ShmAttachOptions& options_;
  ShmGeometry geometry_;  // of the memory, once this rank knows
  const std::string name_;
  const absl::Time deadline_;
  EpochSearch epochs_;
};

absl::StatusOr<std::shared_ptr<ShmMapping>> Attachment::AsCreator() {
  RemoveLeftovers(options_.job_id, options_.epoch);
  RONDA_ASSIGN_OR_RETURN(ShmFile file, CreateFile());
  if (absl::Status status = Allocate(file); !status.ok()) {
    absl::SleepFor(std::min(options_.refusal_time, options_.timeout));
    file.Unlink();
    return status;
  }
  absl::StatusOr<std::shared_ptr<ShmMapping>> mapping = file.Map(ShmView::TotalBytes(geometry_));
  absl::Status status = mapping.status();
  if (status.ok()) {
    const ShmView view((*mapping)->base(), geometry_);
    InitializeHeader(view, options_.geometry);
    status = Claim(view, options_.self.rank);
    if (status.ok()) status = WaitForAllToAttach(view);
  }
  file.Unlink();
  RONDA_RETURN_IF_ERROR(status);
  ShmHeader& header = ShmView((*mapping)->base(), geometry_).header();
  header.phase.store(static_cast<uint32_t>(ShmPhase::kRunning), std::memory_order_release);
  FutexWake(header.phase);
  return mapping;
}

absl::Status Attachment::Allocate(const ShmFile& file) {
  const size_t wanted = ShmView::TotalBytes(geometry_);
  const std::string free = DescribeFreeShm();
  int error_number = file.Allocate(wanted);
  while (error_number == ENOSPC && geometry_.slot_bytes > kShmPageBytes) {
    geometry_.slot_bytes = std::max(geometry_.slot_bytes / 2 / kShmPageBytes, size_t{1}) * kShmPageBytes;
    error_number = file.Allocate(ShmView::TotalBytes(geometry_));
  }
  const std::string lacks = absl::StrCat(free, ", the job needs ", wanted);
  constexpr absl::string_view kRemedy =
      ": remove what is not needed there, make it larger (mount -o remount,size=..., or docker run --shm-size=...), or "
      "run fewer ranks on this host";
  if (error_number != 0) {
    file.Refuse(error_number);
    if (error_number != ENOSPC) return FileError("allocate", name_, error_number);
    return absl::ResourceExhaustedError(absl::StrCat(lacks, kRemedy));
  }
  if (geometry_ == options_.geometry) return absl::OkStatus();
  Log(LogLevel::kWarning, options_.self.rank,
      absl::StrCat(lacks, ": it goes on with pieces of ", geometry_.slot_bytes, " bytes instead of ",
                   options_.geometry.slot_bytes, ", which is slower. To mend it", kRemedy));
  return absl::OkStatus();
}

absl::StatusOr<ShmFile> Attachment::CreateFile() {
  absl::StatusOr<ShmFile> file = ShmFile::Create(name_);
  if (!absl::IsAlreadyExists(file.status())) return file;
  // A job that was killed while its ranks attached may have left it behind. Then its creator is dead.
  absl::StatusOr<ShmFile> old = ShmFile::Open(name_);
  if (absl::IsPermissionDenied(old.status())) return old.status();
  if (old.ok() && old->Size() >= kShmPageBytes) {
    RONDA_ASSIGN_OR_RETURN(const std::shared_ptr<ShmMapping> page, old->Map(kShmPageBytes));
    const ShmHeader& header = *static_cast<const ShmHeader*>(page->base());
    if (header.magic.load(std::memory_order_acquire) == kShmMagic && !IsAlive(CreatorOf(header))) {
      old->Unlink();
      return ShmFile::Create(name_);
    }
  }
  return absl::AlreadyExistsError(absl::StrCat("/dev/shm", name_, " exists: another job has the same id, or a ",
                                               "killed one left it behind, and then it can be removed"));
}

absl::Status Attachment::CheckEpoch() {
  const std::optional<EpochHolder> other = epochs_.LookIfDue(SteadyNow());
  if (!other || other->epoch < options_.epoch) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      ToString(options_.self), " has come for epoch ", options_.epoch, " of job '", options_.job_id,
      "', but the process with pid ", other->pid, " is in epoch ", other->epoch, ": give every rank the same epoch"));
}

std::string Attachment::DescribeOtherEpoch() const {
  const std::optional<EpochHolder> other = epochs_.Look();
  if (!other) return "";
  return absl::StrCat("; this is epoch ", options_.epoch, " of job '", options_.job_id, "', and the process with pid ",
                      other->pid, " is in epoch ", other->epoch);
}

absl::Status Attachment::WaitForAllToAttach(const ShmView& view) {
  ShmHeader& header = view.header();
  for (;;) {
    const uint32_t attached = header.attached.load(std::memory_order_acquire);
    if (header.failure.IsSet()) return header.failure.Get();
    if (attached == header.size) return absl::OkStatus();
    if (IsLate()) {
      return FailAll(header, absl::DeadlineExceededError(absl::StrCat(MissingRanks(view), " did not start within ",
                                                                      absl::FormatDuration(options_.timeout),
                                                                      DescribeOtherEpoch())));
    }
    if (absl::Status status = CheckEpoch(); !status.ok()) return FailAll(header, status);
    FutexWait(header.attached, attached, std::min(kAliveCheckInterval, deadline_ - SteadyNow()));
  }
}

absl::StatusOr<std::shared_ptr<ShmMapping>> Attachment::AsJoiner() {
  std::shared_ptr<ShmMapping> mapping;
  for (;;) {
    RONDA_ASSIGN_OR_RETURN(mapping, TryToJoin());
    if (mapping != nullptr) break;
    if (IsLate()) {
      return absl::DeadlineExceededError(
          absl::StrCat("rank 0 did not create /dev/shm", name_, " within ", absl::FormatDuration(options_.timeout),
                       " (rank ", options_.self.rank, " waited for it; ", DescribeFreeShm(), ", the job needs ",
                       ShmView::TotalBytes(options_.geometry), ")", DescribeOtherEpoch()));
    }
    RONDA_RETURN_IF_ERROR(CheckEpoch());
    absl::SleepFor(kOpenInterval);
  }
  const ShmView view(mapping->base(), geometry_);
  if (absl::Status status = Claim(view, options_.self.rank); !status.ok()) return FailAll(view.header(), status);
  RONDA_RETURN_IF_ERROR(WaitUntilRunning(view));
  return mapping;
}

absl::StatusOr<std::shared_ptr<ShmMapping>> Attachment::TryToJoin() {
  const std::shared_ptr<ShmMapping> not_yet;
  absl::StatusOr<ShmFile> file = ShmFile::Open(name_);
  if (absl::IsNotFound(file.status())) return not_yet;
  RONDA_RETURN_IF_ERROR(file.status());
  if (const int error_number = file->RefusedWith(); error_number != 0) {
    return absl::ResourceExhaustedError(absl::StrCat("rank 0 could not allocate the job's shared memory (",
                                                     std::strerror(error_number), "): ", DescribeFreeShm(),
                                                     ", the job needs ", ShmView::TotalBytes(options_.geometry)));
  }
  if (file->Size() < kShmPageBytes) return not_yet;
  RONDA_ASSIGN_OR_RETURN(const std::shared_ptr<ShmMapping> page, file->Map(kShmPageBytes));
  ShmHeader& header = *static_cast<ShmHeader*>(page->base());
  if (header.magic.load(std::memory_order_acquire) == 0) return not_yet;
  RONDA_RETURN_IF_ERROR(CheckOrigin(header));
  // The rest of a killed job, which this job's creator is about to replace.
  if (!IsAlive(CreatorOf(header))) return not_yet;
  RONDA_RETURN_IF_ERROR(CheckSizes(*file, header));
  geometry_.slot_bytes = header.slot_bytes;
  return file->Map(ShmView::TotalBytes(geometry_));
}

absl::Status Attachment::CheckOrigin(const ShmHeader& header) const {
  if (header.magic.load(std::memory_order_acquire) == kShmMagic && header.layout_version == kShmLayoutVersion) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(absl::StrCat("/dev/shm", name_, " is damaged, or was not made by this ",
                                                    "version of Ronda; if no job is using it, remove it"));
}

absl::Status Attachment::CheckSizes(const ShmFile& file, ShmHeader& header) {
  const ShmGeometry& mine = options_.geometry;
  const size_t total_bytes = ShmView::TotalBytes(mine);
  ShmGeometry made = mine;
  made.slot_bytes = header.slot_bytes;
  if (header.size == static_cast<uint32_t>(mine.size) && header.slot_bytes <= mine.slot_bytes && Validate(made).ok() &&
      header.slot_count == static_cast<uint32_t>(mine.slot_count) && header.total_bytes == total_bytes &&
      file.Size() >= ShmView::TotalBytes(made)) {
    return absl::OkStatus();
  }
  return FailAll(header,
                 absl::FailedPreconditionError(absl::StrCat(
                     "shared memory of ", header.total_bytes, " bytes for ", header.size, " ranks with ",
                     header.slot_count, " slots of ", header.slot_bytes, " bytes was made by rank 0, but ", total_bytes,
                     " bytes for ", mine.size, " ranks with ", mine.slot_count, " slots of ", mine.slot_bytes,
                     " bytes are expected here: give every rank the same size and version of Ronda")));
}

absl::Status Attachment::WaitUntilRunning(const ShmView& view) {
  ShmHeader& header = view.header();
  constexpr auto kAttaching = static_cast<uint32_t>(ShmPhase::kAttaching);
  while (header.phase.load(std::memory_order_acquire) == kAttaching) {
    if (header.failure.IsSet()) return header.failure.Get();
    if (!IsAlive(CreatorOf(header))) {
      return absl::UnavailableError(
          absl::StrCat(ToString({0, options_.self.host, header.creator_pid}), " died while the ranks came together"));
    }
    if (IsLate()) {
      return absl::DeadlineExceededError(
          absl::StrCat(MissingRanks(view), " did not start within ", absl::FormatDuration(options_.timeout)));
    }
    FutexWait(header.phase, kAttaching, std::min(kAliveCheckInterval, deadline_ - SteadyNow()));
  }
  return absl::OkStatus();
}

absl::Status Attachment::FailAll(ShmHeader& header, const absl::Status& failure) {
  header.failure.Set(options_.self.rank, Attribute(failure, options_.self));
  FutexWake(header.phase);
  FutexWake(header.attached);
  return header.failure.Get();
}

// Makes a file of so many bytes. Returns 0, or an errno.
int WriteZeros(int fd, size_t bytes) {
  const std::vector<char> zeros(size_t{1} << 16);
  for (size_t at = 0; at < bytes;) {
    const ssize_t count = pwrite(fd, zeros.data(), std::min(zeros.size(), bytes - at), static_cast<off_t>(at));
    if (count < 0 && errno != EINTR) return errno;
    if (count > 0) at += static_cast<size_t>(count);
  }
  return 0;
}

absl::Status NotOurs(const std::string& name, const struct stat& info) {
  return absl::PermissionDeniedError(
      absl::StrFormat("/dev/shm%s belongs to user %d and has mode %04o and %d links, but the ranks of this job are "
                      "user %d's, whose file "
                      "has mode 0600 and one link: another user's job has the same id, or another user wants to take "
                      "part; give this job "
                      "another id (RONDA_JOB_ID), or remove the file",
                      name, info.st_uid, info.st_mode & 07777, info.st_nlink, geteuid()));
}

}  // namespace

absl::StatusOr<std::shared_ptr<ShmMapping>> ShmMapping::Anonymous(size_t bytes) {
  return MapOrError(bytes, MAP_SHARED | MAP_ANONYMOUS, -1);
}

ShmMapping::~ShmMapping() { munmap(base_, bytes_); }

absl::StatusOr<ShmFile> ShmFile::Create(const std::string& name) {
  const int fd = shm_open(name.c_str(), O_CREAT | O_EXCL | O_RDWR, S_IRUSR | S_IWUSR);
  if (fd < 0) return FileError("create", name, errno);
  ShmFile file(name, fd);
  flock(fd, LOCK_SH);  // until this process ends: HasCreator()
  return file;
}

absl::StatusOr<ShmFile> ShmFile::Open(const std::string& name) {
  const int fd = shm_open(name.c_str(), O_RDWR, 0);
  if (fd < 0) {
    const int error_number = errno;
    struct stat info;
    const std::string path = absl::StrCat(kShmDirectory, name);
    const bool is_anothers = error_number == EACCES && lstat(path.c_str(), &info) == 0 && info.st_uid != geteuid();
    return is_anothers ? NotOurs(name, info) : FileError("open", name, error_number);
  }
  ShmFile file(name, fd);
  // Whoever can write to the file can be a rank of the job: it has to be one of this user's, and closed to all others.
  struct stat info;
  if (fstat(fd, &info) != 0) return FileError("look at", name, errno);
  const bool is_ours =
      S_ISREG(info.st_mode) && info.st_uid == geteuid() && (info.st_mode & 077) == 0 && info.st_nlink <= 1;
  if (!is_ours) return NotOurs(name, info);
  return file;
}

ShmFile::ShmFile(ShmFile&& other) noexcept : name_(std::move(other.name_)), fd_(std::exchange(other.fd_, -1)) {}

ShmFile::~ShmFile() {
  if (fd_ >= 0) close(fd_);
}

int ShmFile::Allocate(size_t bytes) const {
  int error_number;
  do {
    error_number = posix_fallocate(fd_, 0, static_cast<off_t>(bytes));
  } while (error_number == EINTR);
  // Containers' profiles may refuse it, and some systems have none.
  if (error_number == EPERM || error_number == ENOSYS) error_number = WriteZeros(fd_, bytes);
  if (error_number != 0 && ftruncate(fd_, 0) != 0) return errno;  // gives back what there was
  return error_number;
}

size_t ShmFile::Size() const {
  struct stat info;
  return fstat(fd_, &info) == 0 ? static_cast<size_t>(info.st_size) : 0;
}

absl::Duration ShmFile::Age() const {
  struct stat info;
  return fstat(fd_, &info) == 0 ? CalendarNow() - absl::TimeFromTimespec(info.st_mtim) : absl::ZeroDuration();
}

bool ShmFile::HasCreator() const {
  if (flock(fd_, LOCK_EX | LOCK_NB) != 0) return true;
  flock(fd_, LOCK_UN);
  return false;
}

absl::StatusOr<std::shared_ptr<ShmMapping>> ShmFile::Map(size_t bytes) const {
  return MapOrError(bytes, MAP_SHARED | MAP_POPULATE, fd_);
}

void ShmFile::Refuse(int error_number) const {
  // Extending a file takes no memory. If even that fails, the other ranks reach their deadline.
  [[maybe_unused]] const int result = ftruncate(fd_, error_number);
}

int ShmFile::RefusedWith() const {
  const size_t size = Size();
  return size <= kLargestRefusal ? static_cast<int>(size) : 0;
}

void ShmFile::Unlink() const {
  struct stat mine;
  struct stat current;
  const std::string path = absl::StrCat(kShmDirectory, name_);
  if (fstat(fd_, &mine) != 0 || stat(path.c_str(), &current) != 0) return;
  if (mine.st_dev == current.st_dev && mine.st_ino == current.st_ino) shm_unlink(name_.c_str());
}

std::string DescribeFreeShm() {
  struct statvfs info;
  if (statvfs(kShmDirectory, &info) != 0) return absl::StrCat(kShmDirectory, " cannot be read: ", std::strerror(errno));
  return absl::StrCat(kShmDirectory, " has ", info.f_bavail * info.f_frsize, " bytes available");
}

absl::StatusOr<ShmAttached> AttachAllRanks(const ShmAttachOptions& options) {
  Attachment attachment(options);
  RONDA_ASSIGN_OR_RETURN(std::shared_ptr<ShmMapping> mapping,
                         options.self.rank == 0 ? attachment.AsCreator() : attachment.AsJoiner());
  return ShmAttached{.mapping = std::move(mapping), .geometry = attachment.geometry()};
}

absl::StatusOr<std::shared_ptr<ShmMapping>> AttachAllRanksInProcess(const ShmGeometry& geometry) {
  RONDA_ASSIGN_OR_RETURN(std::shared_ptr<ShmMapping> mapping, ShmMapping::Anonymous(ShmView::TotalBytes(geometry)));
  const ShmView view(mapping->base(), geometry);
  InitializeHeader(view, geometry);
  for (RankId rank = 0; rank < geometry.size; ++rank) RONDA_RETURN_IF_ERROR(Claim(view, rank));
  return mapping;
}

bool HasCoreForEachRank(const ShmView& view) {
  int cores = 0;
  for (const std::atomic<uint64_t>& word : view.header().cpus)
    cores += std::popcount(word.load(std::memory_order_relaxed));
  return cores >= view.geometry().size;
}

}  // namespace ronda
