// SPDX-License-Identifier: Apache-2.0

#include "runtime/monitor/rank_meter.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "runtime/base/clock.h"
#include "runtime/monitor/peer_monitor.h"
#include "runtime/monitor/summary_file.h"

namespace ronda {
namespace {

// Copies as much of the text as fits, with a terminating zero.
template <size_t n>
void SetText(char (&to)[n], absl::string_view text) {
  const absl::string_view shortened = ShortName(text, n - 1);
  std::memcpy(to, shortened.data(), shortened.size());
  to[shortened.size()] = '\0';
}

// Creates a file, and seals its size. Readers rely on the seals: if the file shrank, accessing its mapped pages would
// kill the reader.
UniqueFd MakeFile() {
  UniqueFd file(memfd_create(kRankFileName, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  const bool is_made = file.valid() && posix_fallocate(file.get(), 0, sizeof(RankWords)) == 0 &&
                       fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0;
  return is_made ? std::move(file) : UniqueFd();
}

void* MapFile(const UniqueFd& file) {
  if (!file.valid()) return nullptr;
  void* const base = mmap(nullptr, sizeof(RankWords), PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  return base == MAP_FAILED ? nullptr : base;
}

void Introduce(const RankMeter::Options& options, RankWords* words) {
  const ProcessId self = ThisProcess();
  const Topology& topology = options.topology;
  words->bytes = sizeof(RankWords);
  words->start_time = self.start_time;
  words->pid = self.pid;
  words->rank = topology.rank;
  words->size = topology.size;
  words->local_rank = topology.local_rank;
  words->local_size = topology.local_size;
  words->cross_rank = topology.cross_rank;
  words->cross_size = topology.cross_size;
  words->start_ticks = CheapTicks();
  words->start_nanoseconds = FlightNanoseconds();
  words->recorder_descriptor = options.recorder.descriptor;
  words->recorder_offset = options.recorder.descriptor < 0 ? RankWords::kNoRecorder : options.recorder.offset;
  SetText(words->job, options.job.empty() ? absl::StrCat("process-", self.pid) : options.job);
  SetText(words->host, topology.hostname);
  words->magic.store(RankWords::kMagic, std::memory_order_release);
}

}  // namespace

Statistics Read(const RankWords& words) {
  Statistics counts = Read(words.counters);
  const uint64_t ticks = CheapTicks() - words.start_ticks;
  const uint64_t time = FlightNanoseconds() - words.start_nanoseconds;
  // At most 1, because no thread can have waited for longer than the time since the start.
  const double share = static_cast<double>(counts.exposed_nanoseconds) / std::max(static_cast<double>(ticks), 1.0);
  counts.exposed_nanoseconds = static_cast<uint64_t>(std::min(share, 1.0) * static_cast<double>(time >> 1)) << 1;
  return counts;
}

std::unique_ptr<RankMeter> RankMeter::Create(const Options& options) {
  UniqueFd file = MakeFile();
  void* const base = MapFile(file);
  if (base == nullptr) file.Reset();
  RankWords* const words = base == nullptr ? new RankWords : new (base) RankWords;
  Introduce(options, words);
  return std::unique_ptr<RankMeter>(new RankMeter(std::move(file), words));
}

RankMeter::~RankMeter() {
  words_->ended.store(1, std::memory_order_release);
  LeaveForSummary(*words_);
  if (!file_.valid()) {
    delete words_;
  } else {
    munmap(words_, sizeof(RankWords));
  }
}

void RankMeter::BeginStep(uint64_t now) {
  words_->counters.steps.Add();
  words_->last_step_time.store(now, std::memory_order_relaxed);
}

uint64_t RankMeter::NextBucket() {
  const uint64_t number = words_->buckets.load(std::memory_order_relaxed) + 1;
  words_->buckets.store(number, std::memory_order_release);
  return number;
}

void RankMeter::EnterBucket(uint64_t ready, uint64_t now) {
  entered_ = ready < now ? std::max(ready, std::min(left_, now)) : now;
  const uint64_t number = NextBucket();
  RankWords::Entry& entry = words_->entries[number % RankWords::kEntries];
  entry.bucket.store(0, std::memory_order_release);
  entry.time.store(entered_, std::memory_order_release);
  entry.step.store(words_->counters.steps, std::memory_order_release);
  entry.left.store(0, std::memory_order_release);
  entry.bucket.store(number, std::memory_order_release);
  words_->current_since.store(entered_, std::memory_order_release);
  words_->current.store(number, std::memory_order_release);
}

void RankMeter::LeaveBucket(const Bucket& bucket, uint64_t now) {
  Counters& counters = words_->counters;
  counters.tensors.Add(bucket.tensors);
  counters.payload_bytes.Add(bucket.payload_bytes);
  counters.wire_bytes.Add(bucket.wire_bytes);
  words_->collectives[static_cast<int>(bucket.op)][static_cast<int>(bucket.mode)].Add();
  LeaveWithoutEffect(now);
}

void RankMeter::LeaveWithoutEffect(uint64_t now) {
  left_ = now;
  const uint64_t number = words_->buckets.load(std::memory_order_relaxed);
  words_->entries[number % RankWords::kEntries].left.store(left_, std::memory_order_release);
  words_->current.store(0, std::memory_order_release);
  words_->counters.bucket_nanoseconds.Add(left_ - std::min(left_, entered_));
}

}  // namespace ronda
