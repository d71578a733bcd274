// SPDX-License-Identifier: Apache-2.0

#include "runtime/shm/shm_attach.h"

#include <sched.h>
#include <sys/resource.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "runtime/base/clock.h"
#include "runtime/base/files.h"
#include "runtime/base/logging.h"
#include "runtime/base/status_macros.h"
#include "runtime/monitor/peer_monitor.h"
#include "runtime/shm/epoch_search.h"
#include "runtime/shm/shm_link.h"

namespace ronda {
namespace {

// Part of the timeout errors: names the settings that extend the timeout.
constexpr absl::string_view kLonger = " (RONDA_START_TIMEOUT, rondarun --start-timeout)";

constexpr absl::string_view kRemedy =
    ": end other programs, give the container more (docker run --memory, --shm-size), or run fewer ranks on this host";

constexpr absl::Duration kOpenInterval = absl::Milliseconds(1);
constexpr absl::Duration kAliveCheckInterval = absl::Milliseconds(50);
// All waiting ranks of a host poll for the shared memory. The more ranks there are, the longer each pauses between
// polls, so that polling takes only a small share of the host's CPU time.
constexpr absl::Duration kPausePerRank = absl::Microseconds(100);

// The slots of `view` are smaller than those of `wanted` if the latter did not fit.
void InitializeHeader(const ShmView& view, const ShmGeometry& wanted) {
  const ShmGeometry& geometry = view.geometry();
  ShmHeader& header = view.header();
  header.magic = kShmMagic;
  header.layout_version = kShmLayoutVersion;
  header.total_bytes = ShmView::TotalBytes(wanted);
  header.slot_bytes = geometry.slot_bytes;
  header.size = static_cast<uint32_t>(geometry.size);
  header.slot_count = static_cast<uint32_t>(geometry.slot_count);
}

void AddOwnCpus(ShmHeader& header) {
  uint64_t words[kShmCpuMaskWords] = {};
  static_assert(sizeof(words) == sizeof(cpu_set_t));
  cpu_set_t mask;
  if (sched_getaffinity(0, sizeof(mask), &mask) != 0) return;
  std::memcpy(words, &mask, sizeof(words));
  for (int i = 0; i < kShmCpuMaskWords; ++i) header.cpus[i].fetch_or(words[i], std::memory_order_relaxed);
}

// Registers this process as `rank`. Errors: ALREADY_EXISTS if another process has registered as this rank.
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

std::vector<std::string> WithMemfd(std::vector<std::string> folders) {
  folders.insert(folders.begin(), "");
  return folders;
}

absl::Status NotThisVersion(const std::string& path) {
  return absl::FailedPreconditionError(absl::StrCat(
      path, " leads to shared memory that was not made by this version of Ronda: give every rank the same version"));
}

class Attachment {
 public:
  explicit Attachment(const ShmAttachOptions& options)
      : options_(options),
        geometry_(options.geometry),
        folders_(ShmFolders()),
        places_(WithMemfd(folders_)),
        name_(ShmNameOf(options.job_id, options.epoch)),
        deadline_(SteadyNow() + options.timeout),
        epochs_(options.job_id, options.epoch, {.rank = options.self.rank, .size = options.geometry.size},
                SteadyNow()) {}

  absl::StatusOr<std::shared_ptr<ShmMapping>> AsCreator();
  absl::StatusOr<std::shared_ptr<ShmMapping>> AsJoiner();
  const ShmGeometry& geometry() const { return geometry_; }

 private:
  // Creates the memory in the first of places_ with enough space, and sets geometry_. If there is none, reports the
  // error to the other ranks.
  absl::StatusOr<ShmFile> MakeFile();
  // Allocates the memory, with smaller slots if the wanted ones do not fit, and sets geometry_. Returns 0 or an errno.
  int Allocate(const ShmFile& file);
  // Publishes the link in the first of folders_ that accepts it. Stores its path in path_ and its lock in link_lock_.
  absl::Status Publish(ShmLink* link);
  // For a while, publishes the reason why there is no memory, so that the other ranks can read it.
  void Refuse(int error_number);
  // If the memory exceeds this process's file size limit, returns a text such as " (ulimit -f: its files have at most
  // 65536 bytes; raise it)".
  std::string FileLimit() const;
  // "/dev/shm has 65536 bytes available, the job needs 1048576"
  std::string DescribeLack(const std::string& place) const;
  // Warns the user if the memory may be slow, or is smaller than wanted. `lack` is DescribeLack(place) from before the
  // allocation. `reasons` says why the earlier places were not used.
  void WarnOf(const std::string& place, const std::string& lack, const std::vector<std::string>& reasons) const;
  absl::Status WaitForAllToAttach(const ShmView& view);

  // Returns the job's memory, or nullptr if rank 0 has not published it yet.
  absl::StatusOr<std::shared_ptr<ShmMapping>> TryToJoin();
  absl::StatusOr<std::shared_ptr<ShmMapping>> TryToJoinIn(const std::string& folder);
  absl::Status RefusalOf(const ShmLink& link) const;
  absl::Status CheckSizes(const ShmFile& file, ShmHeader& header);
  absl::Status WaitUntilRunning(const ShmView& view);

  // Makes all other ranks fail with `failure`, and returns the error for this rank.
  absl::Status FailAll(ShmHeader& header, const absl::Status& failure);

  bool IsLate() const { return SteadyNow() >= deadline_; }

  // Returns the pause before this rank's next poll, which never ends after the deadline. `shortest` is the pause in a
  // job with few ranks.
  absl::Duration PauseOf(absl::Duration shortest) const {
    return std::min(std::max(shortest, options_.geometry.size * kPausePerRank), deadline_ - SteadyNow());
  }

  // Returns an error if other processes are in a later epoch of the job: this rank's epoch can then no longer start.
  absl::Status CheckEpoch();
  // Returns a text for timeout errors: names a process that is in a different epoch, or is empty if there is none.
  std::string DescribeOtherEpoch() const;

  const ShmAttachOptions& options_;
  ShmGeometry geometry_;                    // of the memory, once known
  const std::vector<std::string> folders_;  // for the link
  const std::vector<std::string> places_;   // for the memory: "" (a memfd), then folders_
  const std::string name_;                  // of the link, in one of the folders
  std::string path_;                        // of the link, once rank 0 has made it
  UniqueFd link_lock_;                      // LockForLink
  ProcessId creator_;                       // of the memory, once found
  std::string obstacle_;                    // why this rank ignored a link that it found
  const absl::Time deadline_;
  EpochSearch epochs_;
};

absl::StatusOr<std::shared_ptr<ShmMapping>> Attachment::AsCreator() {
  RONDA_ASSIGN_OR_RETURN(const ShmFile file, MakeFile());
  absl::StatusOr<std::shared_ptr<ShmMapping>> mapping = file.Map(ShmView::TotalBytes(geometry_));
  if (!mapping.ok()) Refuse(ENOMEM);
  RONDA_RETURN_IF_ERROR(mapping.status());
  const ShmView view((*mapping)->base(), geometry_);
  InitializeHeader(view, options_.geometry);
  RONDA_RETURN_IF_ERROR(Claim(view, options_.self.rank));
  ShmLink link = ShmLinkOfThisProcess(file.descriptor(), 0);
  RONDA_RETURN_IF_ERROR(Publish(&link));
  const absl::Status status = WaitForAllToAttach(view);
  RemoveShmLink(path_, link);
  RONDA_RETURN_IF_ERROR(status);
  ShmHeader& header = view.header();
  header.phase.store(static_cast<uint32_t>(ShmPhase::kRunning), std::memory_order_release);
  FutexWake(header.phase);
  return mapping;
}

absl::StatusOr<ShmFile> Attachment::MakeFile() {
  std::vector<std::string> reasons;
  int first_error = 0;
  for (const std::string& place : places_) {
    const std::string lack = DescribeLack(place);
    if (!place.empty()) RemoveShmLeftovers(place);  // one may have the name
    ShmFile file;
    int error_number = file.Create(place, name_);
    if (error_number != 0 && place.empty()) continue;  // without memfds, a folder will do
    if (error_number == 0) error_number = Allocate(file);
    if (error_number == 0) {
      WarnOf(place, lack, reasons);
      return file;
    }
    if (first_error == 0) first_error = error_number;
    const std::string where = place.empty() ? "" : absl::StrCat(" in ", place);
    reasons.push_back(error_number == ENOSPC ? lack
                                             : absl::StrCat("cannot allocate shared memory", where, FileLimit(), ": ",
                                                            std::strerror(error_number)));
    if (error_number == EFBIG) break;  // the limit is the same everywhere
  }
  Refuse(first_error);
  return absl::Status(absl::ErrnoToStatusCode(first_error),
                      absl::StrCat(absl::StrJoin(reasons, "; "), first_error == EFBIG ? "" : kRemedy));
}

std::string Attachment::FileLimit() const {
  if (IsWithinFileLimit(ShmView::TotalBytes(options_.geometry))) return "";
  rlimit limit = {};
  getrlimit(RLIMIT_FSIZE, &limit);
  return absl::StrCat(" (ulimit -f: its files have at most ", limit.rlim_cur, " bytes; raise it)");
}

std::string Attachment::DescribeLack(const std::string& place) const {
  return absl::StrCat(DescribeFree(place), ", the job needs ", ShmView::TotalBytes(options_.geometry));
}

absl::Status Attachment::Publish(ShmLink* link) {
  std::vector<std::string> reasons;
  for (const std::string& folder : folders_) {
    RemoveShmLeftovers(folder);
    path_ = folder + name_;
    link_lock_ = LockForLink(folder, link);
    const absl::Status status = PublishShmLink(path_, *link);
    if (status.ok() || absl::IsAlreadyExists(status)) return status;
    reasons.emplace_back(status.message());
  }
  return absl::PermissionDeniedError(
      absl::StrCat("no folder can show the ranks where their shared memory is: ", absl::StrJoin(reasons, "; "),
                   ": set TMPDIR to a folder in which the ranks may make files"));
}

void Attachment::Refuse(int error_number) {
  ShmLink link = ShmLinkOfThisProcess(-1, error_number);
  // If publishing the link also fails, the other ranks wait until their deadline.
  if (!Publish(&link).ok()) return;
  absl::SleepFor(std::min(options_.refusal_time, options_.timeout));
  RemoveShmLink(path_, link);
}

int Attachment::Allocate(const ShmFile& file) {
  geometry_ = options_.geometry;
  int error_number = file.Allocate(ShmView::TotalBytes(geometry_));
  while ((error_number == ENOSPC || error_number == EFBIG) && geometry_.slot_bytes > kShmPageBytes) {
    geometry_.slot_bytes = std::max(geometry_.slot_bytes / 2 / kShmPageBytes, size_t{1}) * kShmPageBytes;
    error_number = file.Allocate(ShmView::TotalBytes(geometry_));
  }
  return error_number;
}

void Attachment::WarnOf(const std::string& place, const std::string& lack,
                        const std::vector<std::string>& reasons) const {
  const bool is_in_memory = place.empty() || place == folders_.front();
  if (!is_in_memory) {
    Log(LogLevel::kWarning, options_.self.rank,
        absl::StrCat(absl::StrJoin(reasons, "; "), ": the ranks share memory in ", place,
                     " instead, which may be slower. To mend it", kRemedy));
  }
  if (geometry_ == options_.geometry) return;
  const std::string limit = FileLimit();
  const std::string cause = limit.empty() ? lack : absl::StrCat("the job's shared memory is too large", limit);
  Log(LogLevel::kWarning, options_.self.rank,
      absl::StrCat(cause, ": it goes on with pieces of ", geometry_.slot_bytes, " bytes instead of ",
                   options_.geometry.slot_bytes, ", which is slower",
                   limit.empty() ? absl::StrCat(". To mend it", kRemedy) : ""));
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
          ", or does not see these folders", obstacle_, DescribeOtherEpoch()));
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
  const absl::StatusOr<ShmLink> link = ReadShmLink(path);
  if (absl::IsNotFound(link.status())) return not_yet;
  if (absl::IsPermissionDenied(link.status())) {
    // Any user can create a link with this name, so a bad link does not keep this rank from looking for rank 0's link
    // in the other folders.
    obstacle_ = absl::StrCat("; ", link.status().message());
    return not_yet;
  }
  RONDA_RETURN_IF_ERROR(link.status());
  if (IsLeftover(path, *link)) return not_yet;
  if (link->descriptor < 0) return RefusalOf(*link);
  const absl::StatusOr<ShmFile> file = ShmFile::Open(link->Target());
  if (absl::IsNotFound(file.status())) return not_yet;
  RONDA_RETURN_IF_ERROR(file.status());
  creator_ = link->creator;
  if (file->Size() < kShmPageBytes) return NotThisVersion(path);
  RONDA_ASSIGN_OR_RETURN(const std::shared_ptr<ShmMapping> page, file->Map(kShmPageBytes));
  ShmHeader& header = *static_cast<ShmHeader*>(page->base());
  if (header.magic != kShmMagic || header.layout_version != kShmLayoutVersion) return NotThisVersion(path);
  RONDA_RETURN_IF_ERROR(CheckSizes(*file, header));
  geometry_.slot_bytes = header.slot_bytes;
  return file->Map(ShmView::TotalBytes(geometry_));
}

absl::Status Attachment::RefusalOf(const ShmLink& link) const {
  std::vector<std::string> free;
  for (const std::string& place : places_) free.push_back(DescribeFree(place));
  const std::string why = link.error_number == EFBIG ? FileLimit()
                                                     : absl::StrCat(": ", absl::StrJoin(free, "; "), "; the job needs ",
                                                                    ShmView::TotalBytes(options_.geometry), kRemedy);
  return absl::ResourceExhaustedError(
      absl::StrCat("rank 0 could not allocate the job's shared memory (", std::strerror(link.error_number), ")", why));
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
    if (!IsAlive(creator_)) {
      return absl::UnavailableError(
          absl::StrCat(ToString({0, options_.self.host, creator_.pid}), " died while the ranks came together"));
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
  if (options.geometry.size > 1 && ThisProcess().start_time == 0) {
    return absl::FailedPreconditionError(
        "cannot read /proc, through which the ranks of a host find their shared memory: mount it (mount -t proc proc "
        "/proc), or set RONDA_BACKEND=tcp");
  }
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
