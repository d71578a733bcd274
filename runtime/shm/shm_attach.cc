// SPDX-License-Identifier: Apache-2.0

#include "runtime/shm/shm_attach.h"

#include <sched.h>
#include <sys/resource.h>

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
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "runtime/base/clock.h"
#include "runtime/base/files.h"
#include "runtime/base/logging.h"
#include "runtime/base/status_macros.h"
#include "runtime/monitor/peer_monitor.h"
#include "runtime/shm/epoch_search.h"

namespace ronda {
namespace {

// Appended to the error of a rank that has waited in vain.
constexpr absl::string_view kLonger = " (RONDA_START_TIMEOUT, rondarun --start-timeout)";

constexpr absl::string_view kRemedy =
    ": remove what is not needed there, make it larger (mount -o remount,size=..., or docker run --shm-size=...), "
    "or run fewer ranks on this host";

constexpr absl::Duration kOpenInterval = absl::Milliseconds(1);
constexpr absl::Duration kAliveCheckInterval = absl::Milliseconds(50);
// The ranks of a host look at the same time. The pauses between a rank's looks grow with the number of ranks, so that
// all looks together leave most of the host's time to the ranks that are awaited.
constexpr absl::Duration kPausePerRank = absl::Microseconds(100);

// `wanted` has larger slots than the memory if these did not fit.
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

// Whether no process waits any more for ranks to attach. If the file is younger than `may_be_new`, its creator may have
// made it but not locked it yet. Returns false in doubt: another container may have the creator's pid.
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

// Removes the files in a folder that this user's jobs left when they were killed while their ranks attached.
void RemoveLeftovers(const std::string& folder, const std::string& job_id, int64_t epoch) {
  std::error_code error;
  for (std::filesystem::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    const std::string path = it->path().string();
    if (!absl::StartsWith(path, absl::StrCat(folder, ShmNameOf("", 0)))) continue;
    const absl::StatusOr<ShmFile> file = ShmFile::Open(path);
    // No process creates a file of an earlier epoch of this job any more.
    const std::optional<int64_t> its_epoch = EpochInLink(path, job_id);
    const bool is_past = its_epoch.has_value() && *its_epoch < epoch;
    const absl::Duration may_be_new = is_past ? -absl::InfiniteDuration() : absl::Minutes(1);
    if (file.ok() && IsLeftover(*file, may_be_new)) file->Unlink();
  }
}

// " (ulimit -f: its files have at most 65536 bytes; raise it)", if this process has such a limit.
std::string FileLimit() {
  rlimit limit = {};
  if (getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return "";
  return absl::StrCat(" (ulimit -f: its files have at most ", limit.rlim_cur, " bytes; raise it)");
}

class Attachment {
 public:
  explicit Attachment(const ShmAttachOptions& options)
      : options_(options),
        geometry_(options.geometry),
        folders_(ShmFolders()),
        name_(ShmNameOf(options.job_id, options.epoch)),
        deadline_(SteadyNow() + options.timeout),
        epochs_(options.job_id, options.epoch, {.rank = options.self.rank, .size = options.geometry.size},
                SteadyNow()) {}

  absl::StatusOr<std::shared_ptr<ShmMapping>> AsCreator();
  absl::StatusOr<std::shared_ptr<ShmMapping>> AsJoiner();
  const ShmGeometry& geometry() const { return geometry_; }

 private:
  // The file in a folder, or why it is not there.
  struct Attempt {
    std::optional<ShmFile> file = {};  // also set if it has no memory
    int allocation_error = 0;          // an errno
    absl::Status status = {};
    bool is_final = false;  // whether no other folder is tried
  };
  // Makes the file in the first folder that can hold it, and sets geometry_.
  absl::StatusOr<ShmFile> MakeFile();
  // Makes the file in a folder, with smaller slots if the wanted ones do not fit. Sets geometry_. `lack`: what
  // DescribeLack returned for the folder.
  Attempt MakeFileIn(const std::string& folder, const std::string& lack);
  absl::StatusOr<ShmFile> ReplaceFileOfDead(const std::string& path);
  int Allocate(const ShmFile& file);
  // "/dev/shm has 65536 bytes available, the job needs 1048576"
  std::string DescribeLack(const std::string& folder) const;
  // Warns the user if the memory is not in the first folder, or is smaller than wanted. `reasons`: why each earlier
  // folder was not used; `lack`: as for MakeFileIn.
  void WarnOf(const std::string& folder, const std::string& lack, const std::vector<std::string>& reasons) const;
  absl::Status WaitForAllToAttach(const ShmView& view);

  // Returns the job's memory once its creator has prepared it, and nullptr before that.
  absl::StatusOr<std::shared_ptr<ShmMapping>> TryToJoin();
  absl::StatusOr<std::shared_ptr<ShmMapping>> TryToJoinIn(const std::string& folder);
  absl::Status CheckOrigin(const ShmHeader& header, const std::string& path) const;
  absl::Status CheckSizes(const ShmFile& file, ShmHeader& header);
  absl::Status WaitUntilRunning(const ShmView& view);

  // Makes `failure` the reason for which all other ranks also give up.
  absl::Status FailAll(ShmHeader& header, const absl::Status& failure);

  bool IsLate() const { return SteadyNow() >= deadline_; }

  // The pause before this rank looks again; `shortest` is that of a few ranks. Never beyond the deadline.
  absl::Duration PauseOf(absl::Duration shortest) const {
    return std::min(std::max(shortest, options_.geometry.size * kPausePerRank), deadline_ - SteadyNow());
  }

  // Whether this rank's job can still start: returns an error if other processes are in a later epoch of the job.
  absl::Status CheckEpoch();
  // For the error of a rank that has waited in vain: says that others are in another epoch, or is empty.
  std::string DescribeOtherEpoch() const;

  const ShmAttachOptions& options_;
  ShmGeometry geometry_;  // of the memory, once this rank knows
  const std::vector<std::string> folders_;
  const std::string name_;  // of the file, in one of the folders
  const absl::Time deadline_;
  EpochSearch epochs_;
};

absl::StatusOr<std::shared_ptr<ShmMapping>> Attachment::AsCreator() {
  RONDA_ASSIGN_OR_RETURN(const ShmFile file, MakeFile());
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

absl::StatusOr<ShmFile> Attachment::MakeFile() {
  std::vector<std::string> reasons;
  Attempt first;  // the first attempt that failed for lack of memory
  absl::StatusCode code = absl::StatusCode::kOk;
  for (const std::string& folder : folders_) {
    RemoveLeftovers(folder, options_.job_id, options_.epoch);
    const std::string lack = DescribeLack(folder);
    Attempt attempt = MakeFileIn(folder, lack);
    if (attempt.status.ok()) {
      if (first.file.has_value()) first.file->Unlink();
      WarnOf(folder, lack, reasons);
      return *std::move(attempt.file);
    }
    if (attempt.is_final) return attempt.status;
    reasons.emplace_back(attempt.status.message());
    if (code == absl::StatusCode::kOk) code = attempt.status.code();
    if (attempt.file.has_value() && first.file.has_value()) attempt.file->Unlink();
    if (attempt.file.has_value() && !first.file.has_value()) first = std::move(attempt);
  }
  if (first.file.has_value()) {
    first.file->Refuse(first.allocation_error);
    absl::SleepFor(std::min(options_.refusal_time, options_.timeout));
    first.file->Unlink();
  }
  return absl::Status(code, absl::StrCat(absl::StrJoin(reasons, "; "), first.allocation_error == EFBIG ? "" : kRemedy));
}

std::string Attachment::DescribeLack(const std::string& folder) const {
  return absl::StrCat(DescribeFree(folder), ", the job needs ", ShmView::TotalBytes(options_.geometry));
}

Attachment::Attempt Attachment::MakeFileIn(const std::string& folder, const std::string& lack) {
  const std::string path = folder + name_;
  geometry_ = options_.geometry;
  absl::StatusOr<ShmFile> file = ShmFile::Create(path);
  const bool is_taken = absl::IsAlreadyExists(file.status());
  if (is_taken) file = ReplaceFileOfDead(path);
  if (!file.ok()) return {.status = file.status(), .is_final = is_taken};
  const int error_number = Allocate(*file);
  if (error_number == 0) return {.file = *std::move(file)};
  return {.file = *std::move(file),
          .allocation_error = error_number,
          .status = error_number == ENOSPC
                        ? absl::ResourceExhaustedError(lack)
                        : absl::ErrnoToStatus(error_number, absl::StrCat("cannot allocate ", path, FileLimit()))};
}

absl::StatusOr<ShmFile> Attachment::ReplaceFileOfDead(const std::string& path) {
  absl::StatusOr<ShmFile> old = ShmFile::Open(path);
  if (absl::IsPermissionDenied(old.status())) return old.status();
  if (old.ok() && old->Size() >= kShmPageBytes) {
    RONDA_ASSIGN_OR_RETURN(const std::shared_ptr<ShmMapping> page, old->Map(kShmPageBytes));
    const ShmHeader& header = *static_cast<const ShmHeader*>(page->base());
    // The file was left behind by a job that was killed while its ranks attached.
    if (header.magic.load(std::memory_order_acquire) == kShmMagic && !IsAlive(CreatorOf(header))) {
      old->Unlink();
      return ShmFile::Create(path);
    }
  }
  return absl::AlreadyExistsError(absl::StrCat(
      path, " exists: another job has the same id, or a killed job left it behind, and then it can be removed"));
}

int Attachment::Allocate(const ShmFile& file) {
  int error_number = file.Allocate(ShmView::TotalBytes(geometry_));
  while ((error_number == ENOSPC || error_number == EFBIG) && geometry_.slot_bytes > kShmPageBytes) {
    geometry_.slot_bytes = std::max(geometry_.slot_bytes / 2 / kShmPageBytes, size_t{1}) * kShmPageBytes;
    error_number = file.Allocate(ShmView::TotalBytes(geometry_));
  }
  return error_number;
}

void Attachment::WarnOf(const std::string& folder, const std::string& lack,
                        const std::vector<std::string>& reasons) const {
  if (!reasons.empty()) {
    Log(LogLevel::kWarning, options_.self.rank,
        absl::StrCat(absl::StrJoin(reasons, "; "), ": the ranks share memory in ", folder,
                     " instead, which may be slower. To mend it", kRemedy));
  }
  if (geometry_ == options_.geometry) return;
  Log(LogLevel::kWarning, options_.self.rank,
      absl::StrCat(lack, FileLimit(), ": it goes on with pieces of ", geometry_.slot_bytes, " bytes instead of ",
                   options_.geometry.slot_bytes, ", which is slower. To mend it", kRemedy));
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
                                                                      absl::FormatDuration(options_.timeout), kLonger,
                                                                      DescribeOtherEpoch())));
    }
    if (absl::Status status = CheckEpoch(); !status.ok()) return FailAll(header, status);
    FutexWait(header.attached, attached, PauseOf(kAliveCheckInterval));
  }
}

absl::StatusOr<std::shared_ptr<ShmMapping>> Attachment::AsJoiner() {
  std::shared_ptr<ShmMapping> mapping;
  for (;;) {
    RONDA_ASSIGN_OR_RETURN(mapping, TryToJoin());
    if (mapping != nullptr) break;
    if (IsLate()) {
      return absl::DeadlineExceededError(absl::StrCat(
          "rank 0 has not called init within ", absl::FormatDuration(options_.timeout), " (rank ", options_.self.rank,
          " waited for ", absl::StrJoin(folders_, " or "), name_, "): it has not started, needs longer", kLonger,
          ", or does not see these folders", DescribeOtherEpoch()));
    }
    RONDA_RETURN_IF_ERROR(CheckEpoch());
    absl::SleepFor(PauseOf(kOpenInterval));
  }
  const ShmView view(mapping->base(), geometry_);
  if (absl::Status status = Claim(view, options_.self.rank); !status.ok()) return FailAll(view.header(), status);
  RONDA_RETURN_IF_ERROR(WaitUntilRunning(view));
  return mapping;
}

absl::StatusOr<std::shared_ptr<ShmMapping>> Attachment::TryToJoin() {
  for (const std::string& folder : folders_) {
    RONDA_ASSIGN_OR_RETURN(std::shared_ptr<ShmMapping> mapping, TryToJoinIn(folder));
    if (mapping != nullptr) return mapping;
  }
  return nullptr;
}

absl::StatusOr<std::shared_ptr<ShmMapping>> Attachment::TryToJoinIn(const std::string& folder) {
  const std::shared_ptr<ShmMapping> not_yet;
  const std::string path = folder + name_;
  absl::StatusOr<ShmFile> file = ShmFile::Open(path);
  if (absl::IsNotFound(file.status())) return not_yet;
  RONDA_RETURN_IF_ERROR(file.status());
  if (const int error_number = file->RefusedWith(); error_number != 0) {
    const std::string why = error_number == EFBIG ? FileLimit() : absl::StrCat(": ", DescribeLack(folder), kRemedy);
    return absl::ResourceExhaustedError(
        absl::StrCat("rank 0 could not allocate the job's shared memory (", std::strerror(error_number), ")", why));
  }
  if (file->Size() < kShmPageBytes) return not_yet;
  RONDA_ASSIGN_OR_RETURN(const std::shared_ptr<ShmMapping> page, file->Map(kShmPageBytes));
  ShmHeader& header = *static_cast<ShmHeader*>(page->base());
  if (header.magic.load(std::memory_order_acquire) == 0) return not_yet;
  RONDA_RETURN_IF_ERROR(CheckOrigin(header, path));
  // The file was left behind by a killed job; this job's creator is about to replace it.
  if (!IsAlive(CreatorOf(header))) return not_yet;
  RONDA_RETURN_IF_ERROR(CheckSizes(*file, header));
  geometry_.slot_bytes = header.slot_bytes;
  return file->Map(ShmView::TotalBytes(geometry_));
}

absl::Status Attachment::CheckOrigin(const ShmHeader& header, const std::string& path) const {
  if (header.magic.load(std::memory_order_acquire) == kShmMagic && header.layout_version == kShmLayoutVersion) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(
      absl::StrCat(path, " is damaged, or was not made by this version of Ronda; if no job is using it, remove it"));
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
          absl::StrCat(MissingRanks(view), " did not start within ", absl::FormatDuration(options_.timeout), kLonger));
    }
    FutexWait(header.phase, kAttaching, PauseOf(kAliveCheckInterval));
  }
  return absl::OkStatus();
}

absl::Status Attachment::FailAll(ShmHeader& header, const absl::Status& failure) {
  header.failure.Set(options_.self.rank, Attribute(failure, options_.self));
  FutexWake(header.phase);
  FutexWake(header.attached);
  return header.failure.Get();
}

}  // namespace

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
