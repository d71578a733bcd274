// SPDX-License-Identifier: Apache-2.0

#include "programs/monitor/jobs/rank_reader.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <fstream>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "runtime/base/config.h"
#include "runtime/base/status_macros.h"
#include "runtime/monitor/summary_file.h"

namespace ronda {
namespace {

constexpr uint64_t kPageBytes = 4096;

// The maximum number of attempts to read values that the rank may be changing. It is limited because the rank may be
// stopped in the middle of a write.
constexpr int kLooks = 100;

FlightTime FromNanoseconds(uint64_t time) { return absl::Nanoseconds(static_cast<int64_t>(time)); }

std::string DescriptorPath(pid_t pid, int descriptor) { return absl::StrCat("/proc/", pid, "/fd/", descriptor); }

template <size_t n>
std::string TextOf(const char (&from)[n]) {
  return std::string(from, strnlen(from, n));
}

bool IsText(absl::string_view text) {
  return std::all_of(text.begin(), text.end(), [](unsigned char c) { return c > ' ' && c != 0x7f; });
}

// A program may use control characters in the name of a tensor; they must not reach a terminal.
void MakePrintable(std::string* name) {
  for (char& c : *name) {
    if (absl::ascii_iscntrl(static_cast<unsigned char>(c))) c = '?';
  }
}

// Returns nullopt if `from` belongs to another bucket, or if the rank is writing it.
std::optional<BucketEntry> ReadEntry(const RankWords::Entry& from, uint64_t bucket) {
  if (from.bucket.load(std::memory_order_acquire) != bucket) return std::nullopt;
  const BucketEntry entry = {.bucket = bucket,
                             .time = from.time.load(std::memory_order_acquire),
                             .step = from.step.load(std::memory_order_acquire),
                             .left = from.left.load(std::memory_order_acquire)};
  if (from.bucket.load(std::memory_order_acquire) != bucket) return std::nullopt;
  return entry;
}

// Reads the rank's current bucket and when the rank entered it. If the rank enters another bucket between the two
// reads, the values do not belong together, so both are read again.
void ReadCurrent(const RankWords& words, RankSample* sample) {
  for (int look = 0; look < kLooks; ++look) {
    sample->current = words.current.load(std::memory_order_acquire);
    sample->current_since = FromNanoseconds(words.current_since.load(std::memory_order_acquire));
    if (words.current.load(std::memory_order_acquire) == sample->current) return;
  }
  sample->current = 0;
}

// Returns the start time of a process.
std::optional<uint64_t> StartOf(pid_t pid) {
  const std::optional<ProcessStat> stat = ReadProcessStat(pid);
  if (!stat) return std::nullopt;
  return stat->start_time;
}

// Returns whether `own` is the pid of process `pid` in that process's own pid namespace. The two pids differ if the
// process runs in a container. Also returns true if the pid in that namespace cannot be read.
bool CallsItself(pid_t pid, pid_t own) {
  std::ifstream status(absl::StrCat("/proc/", pid, "/status"));
  for (std::string line; std::getline(status, line);) {
    if (!absl::StartsWith(line, "NSpid:")) continue;
    const std::vector<absl::string_view> pids = absl::StrSplit(line, '\t');  // in all namespaces; its own is last
    pid_t last = 0;
    return !absl::SimpleAtoi(pids.back(), &last) || last == own;
  }
  return true;
}

// The fields that identify the layout are at the same offsets in every layout. Another layout version may be shorter
// than RankWords.
constexpr size_t kLayoutBytes = offsetof(RankWords, start_time);

// REQUIRES: `words` is `bytes` bytes long.
absl::Status CheckLayout(const RankWords& words, size_t bytes) {
  if (bytes < kLayoutBytes || words.magic.load(std::memory_order_acquire) != RankWords::kMagic) {
    return absl::InvalidArgumentError("these are not the words of a rank");
  }
  if (words.version != RankWords::kVersion) {
    return absl::FailedPreconditionError(absl::StrCat("the rank's library keeps its counters in layout ", words.version,
                                                      ", and this program reads layout ", RankWords::kVersion,
                                                      ": use the program that came with that library"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckRankWords(const RankWords& words, size_t bytes) {
  RONDA_RETURN_IF_ERROR(CheckLayout(words, bytes));
  if (bytes != sizeof(RankWords) || words.bytes != sizeof(RankWords)) {
    return absl::InvalidArgumentError(absl::StrCat("a rank has ", sizeof(RankWords), " bytes of words, not ", bytes));
  }
  const bool has_place = words.rank >= 0 && words.rank < words.size && words.local_rank >= 0 &&
                         words.local_rank < words.local_size && words.local_size <= words.size;
  if (!has_place) {
    return absl::InvalidArgumentError(absl::StrCat("rank ", words.rank, " of ", words.size, ", ", words.local_rank,
                                                   " of ", words.local_size, " on its host, cannot be"));
  }
  if (!IsText(TextOf(words.job)) || !IsText(TextOf(words.host))) {
    return absl::InvalidArgumentError("the name of the job or of the host has bytes that no name has");
  }
  return absl::OkStatus();
}

void Unmapper::operator()(void* base) const { munmap(base, bytes); }

absl::StatusOr<MappedPages> RankReader::Map(const std::string& path, uint64_t offset, size_t bytes) {
  const UniqueFd file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.valid()) return absl::ErrnoToStatus(errno, absl::StrCat("cannot open ", path));
  struct stat info;
  if (fstat(file.get(), &info) != 0) return absl::ErrnoToStatus(errno, absl::StrCat("cannot look at ", path));
  const auto size = static_cast<uint64_t>(info.st_size);
  if (offset > size || bytes > size - offset) {
    return absl::InvalidArgumentError(absl::StrCat(path, " has only ", size, " bytes"));
  }
  void* const base = mmap(nullptr, bytes, PROT_READ, MAP_SHARED, file.get(), static_cast<off_t>(offset));
  if (base == MAP_FAILED) return absl::ErrnoToStatus(errno, absl::StrCat("cannot map ", path));
  return MappedPages(base, Unmapper{.bytes = bytes});
}

absl::StatusOr<std::unique_ptr<RankReader>> RankReader::Open(pid_t pid, int descriptor) {
  const std::string path = DescriptorPath(pid, descriptor);
  if (!IsMemoryFile(path, kRankFileName)) return absl::NotFoundError(absl::StrCat(path, " is not the file of a rank"));
  RONDA_ASSIGN_OR_RETURN(const MappedPages layout, Map(path, 0, kLayoutBytes));
  RONDA_RETURN_IF_ERROR(CheckLayout(*static_cast<const RankWords*>(layout.get()), kLayoutBytes));
  RONDA_ASSIGN_OR_RETURN(MappedPages mapping, Map(path, 0, sizeof(RankWords)));
  const auto& words = *static_cast<const RankWords*>(mapping.get());
  RONDA_RETURN_IF_ERROR(CheckRankWords(words, sizeof(RankWords)));
  if (words.ended != 0) return absl::NotFoundError(absl::StrCat(path, " is of a rank that has ended"));
  // The process `pid` is not necessarily the rank. It may be a child that the rank forked, or a process that reads the
  // file, as this one does. The start time does not suffice to identify the rank, because processes that start together
  // may have the same start time.
  if (StartOf(pid) != words.start_time || !CallsItself(pid, words.pid)) {
    return absl::NotFoundError(absl::StrCat(path, " is of another process"));
  }
  return std::unique_ptr<RankReader>(new RankReader(std::move(mapping), {pid, words.start_time}, path));
}

absl::StatusOr<std::unique_ptr<RankReader>> RankReader::OfFinalWords(absl::string_view bytes) {
  void* const base =
      mmap(nullptr, sizeof(RankWords), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, /*fd=*/-1, /*offset=*/0);
  if (base == MAP_FAILED) return absl::ErrnoToStatus(errno, "no memory for the final words of a rank");
  MappedPages mapping(base, Unmapper{.bytes = sizeof(RankWords)});
  std::memcpy(base, bytes.data(), std::min(bytes.size(), sizeof(RankWords)));
  auto& words = *static_cast<RankWords*>(base);
  RONDA_RETURN_IF_ERROR(CheckRankWords(words, bytes.size()));
  words.ended = 1;
  words.recorder_descriptor = -1;  // the process has ended
  return std::unique_ptr<RankReader>(new RankReader(std::move(mapping), {words.pid, words.start_time}, ""));
}

RankReader::RankReader(MappedPages mapping, ProcessId process, std::string path)
    : words_(std::move(mapping)), path_(std::move(path)) {
  identity_ = {.job = TextOf(words().job),
               .topology = {.rank = words().rank,
                            .size = words().size,
                            .local_rank = words().local_rank,
                            .local_size = words().local_size,
                            .cross_rank = words().cross_rank,
                            .cross_size = words().cross_size,
                            .hostname = TextOf(words().host)},
               .process = process};
  MapRecorder();
}

// When the rank has ended, its path may refer to the file of another rank. So this function first opens the file, and
// then checks that the rank is alive.
absl::StatusOr<UniqueFd> RankReader::OpenToWrite() const {
  UniqueFd file(open(path_.c_str(), O_RDWR | O_CLOEXEC));
  if (!IsAlive()) return absl::NotFoundError("the rank has ended");
  if (!file.valid()) return absl::ErrnoToStatus(errno, absl::StrCat("cannot open ", path_));
  return file;
}

// A mapping must start at a page boundary. So it also covers the bytes between the page boundary and the flight
// recorder.
void RankReader::MapRecorder() {
  const uint64_t offset = words().recorder_offset;
  if (words().recorder_descriptor < 0 || offset == RankWords::kNoRecorder || offset % alignof(FlightRecorder) != 0)
    return;
  const uint64_t within = offset % kPageBytes;
  auto pages = Map(DescriptorPath(identity_.process.pid, words().recorder_descriptor), offset - within,
                   within + sizeof(FlightRecorder));
  if (!pages.ok()) return;
  recorder_pages_ = *std::move(pages);
  recorder_ = reinterpret_cast<const FlightRecorder*>(static_cast<const char*>(recorder_pages_.get()) + within);
}

RankSample RankReader::Read() const {
  RankSample sample = {.counts = ronda::Read(words()),
                       .buckets = words().buckets.load(std::memory_order_acquire),
                       .last_step = FromNanoseconds(words().last_step_time.load(std::memory_order_relaxed))};
  for (int op = 0; op < kOpTypeCount; ++op) {
    for (int mode = 0; mode < kBucketModeCount; ++mode) sample.collectives[op][mode] = words().collectives[op][mode];
  }
  for (size_t i = 0; i < sample.device_nanoseconds.size(); ++i) {
    sample.device_nanoseconds[i] = words().device_times.nanoseconds[i];
  }
  ReadCurrent(words(), &sample);
  sample.entries.reserve(RankWords::kEntries);
  // If an entry belongs to another bucket, the rank has overwritten the entry, or does not take part in this bucket.
  const uint64_t kept = std::min<uint64_t>(sample.buckets, RankWords::kEntries);
  for (uint64_t bucket = sample.buckets - kept + 1; bucket <= sample.buckets; ++bucket) {
    const std::optional<BucketEntry> entry = ReadEntry(words().entries[bucket % RankWords::kEntries], bucket);
    if (entry.has_value()) sample.entries.push_back(*entry);
  }
  // The rank may have overwritten some entries of the ring while they were read. It may also be writing the newest
  // entry, which then still has the number of an old bucket.
  const uint64_t newest = words().buckets.load(std::memory_order_acquire);
  if (newest >= RankWords::kEntries) sample.first_kept = newest - RankWords::kEntries + 1;
  if (recorder_ != nullptr) sample.last = recorder_->Last();
  if (sample.last.has_value()) MakePrintable(&sample.last->name);
  return sample;
}

std::vector<FlightEvent> RankReader::Events() const {
  if (recorder_ == nullptr) return {};
  std::vector<FlightEvent> events = recorder_->Events();
  for (FlightEvent& event : events) MakePrintable(&event.name);
  return events;
}

FoundRanks FindRanks() {
  FoundRanks found;
  for (const pid_t pid : NumbersIn("/proc")) {
    for (const int descriptor : NumbersIn(absl::StrCat("/proc/", pid, "/fd"))) {
      if (!IsMemoryFile(DescriptorPath(pid, descriptor), kRankFileName)) continue;
      auto rank = RankReader::Open(pid, descriptor);
      if (rank.ok()) {
        found.ranks.push_back(*std::move(rank));
      } else if (!absl::IsNotFound(rank.status())) {
        found.problems.push_back(absl::StrCat("process ", pid, ": ", rank.status().message()));
      }
    }
  }
  const auto key = [](const std::unique_ptr<RankReader>& rank) {
    const RankIdentity& identity = rank->identity();
    return std::tie(identity.job, identity.topology.rank, identity.process.pid);
  };
  std::sort(found.ranks.begin(), found.ranks.end(), [&](const auto& a, const auto& b) { return key(a) < key(b); });
  // A process may have the file of its RankWords open twice, because another thread may be reading the file right now.
  const auto is_same = [&](const auto& a, const auto& b) { return key(a) == key(b); };
  found.ranks.erase(std::unique(found.ranks.begin(), found.ranks.end(), is_same), found.ranks.end());
  return found;
}

std::vector<std::unique_ptr<RankReader>> FindRanks(const RankFilter& is_one) {
  std::vector<std::unique_ptr<RankReader>> ranks = FindRanks().ranks;
  std::erase_if(ranks, [&](const auto& rank) { return !is_one(rank->identity()); });
  return ranks;
}

RankFilter OfJob(std::string job) {
  return [job = std::move(job)](const RankIdentity& rank) { return rank.job == job; };
}

RankFilter OfJobInAnyEpoch(std::string job_id) {
  return [job_id = std::move(job_id)](const RankIdentity& rank) { return SplitName(rank.job).job_id == job_id; };
}

}  // namespace ronda
