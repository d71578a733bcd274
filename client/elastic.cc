// SPDX-License-Identifier: Apache-2.0

#include "client/elastic.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/status_macros.h"

namespace ronda {
namespace {

// Packs a step and a rank into one number. The largest such number belongs to the rank with the most steps or, among
// several such ranks, to the lowest rank.
constexpr int64_t kRanks = int64_t{1} << 20;
constexpr int64_t kMaxStep = int64_t{1} << 40;

int64_t KeyOf(int64_t step, RankId rank) { return step < 0 ? -1 : step * kRanks + (kRanks - 1 - rank); }
int64_t StepOf(int64_t key) { return key < 0 ? -1 : key / kRanks; }
RankId RankOf(int64_t key) { return static_cast<RankId>(kRanks - 1 - key % kRanks); }

// Indices into StateFacts.
constexpr size_t kClean = 0;     // the key of this rank's complete state; -1: it has none
constexpr size_t kSnapshot = 1;  // the key of its snapshot; -1: it has none
constexpr size_t kHasState = 2;  // 0 or 1
constexpr size_t kBehind = 3;    // minus the steps of its complete state; the maximum belongs to the oldest state

}  // namespace

void StepMarks::EndUpdate() {
  const int64_t target = target_.load(std::memory_order_relaxed);
  if (target >= 0) {
    target_.store(-1, std::memory_order_relaxed);
    word_.store(2 * target, std::memory_order_release);
  } else {
    word_.store(has_state() ? (word_.load(std::memory_order_relaxed) | kInconsistent) + 1 : 2,
                std::memory_order_release);
  }
}

absl::StatusOr<StateFacts> FactsOf(const StepMarks& marks, int64_t snapshot_step, RankId rank) {
  const int64_t clean = marks.is_inconsistent() ? -1 : marks.steps();
  if (std::max(clean, snapshot_step) > kMaxStep) {
    return absl::InvalidArgumentError(
        absl::StrCat("step ", std::max(clean, snapshot_step), " is beyond the last one, ", kMaxStep));
  }
  StateFacts facts;
  facts[kClean] = KeyOf(clean, rank);
  facts[kSnapshot] = KeyOf(snapshot_step, rank);
  facts[kHasState] = marks.has_state() ? 1 : 0;
  facts[kBehind] = -clean;
  return facts;
}

absl::StatusOr<StateSource> DecideSource(const StateFacts& maxima, int size) {
  const int64_t clean = StepOf(maxima[kClean]);
  const int64_t snapshot = StepOf(maxima[kSnapshot]);
  if (clean >= 0 && clean >= snapshot) {
    return StateSource{.step = clean, .rank = RankOf(maxima[kClean]), .any_behind = maxima[kBehind] > -clean};
  }
  if (snapshot >= 0) {
    return StateSource{.step = snapshot, .rank = RankOf(maxima[kSnapshot]), .is_snapshot = true, .any_behind = true};
  }
  if (maxima[kHasState] == 0) return StateSource{.step = 0, .rank = 0, .any_behind = size > 1};
  return absl::DataLossError(
      "no rank has a complete state any more: an operation has failed on every rank while it changed its state, "
      "between ronda_elastic_begin_update() and ronda_elastic_end_update(), and none keeps a snapshot. Let no "
      "operation run there, or take snapshots (snapshot_every); the job can start again from a checkpoint");
}

class ElasticMember::Use {
 public:
  explicit Use(ElasticMember* member) : member_(*member) {
    MutexLock lock(&member_.mu_);
    channel_ = std::move(member_.channel_);
  }
  ~Use() {
    MutexLock lock(&member_.mu_);
    if (channel_ != nullptr) member_.channel_ = std::move(channel_);
  }
  Use(const Use&) = delete;
  Use& operator=(const Use&) = delete;

  // Returns the channel, or null if another thread is using it.
  MemberChannel* channel() const { return channel_.get(); }

 private:
  ElasticMember& member_;
  std::unique_ptr<MemberChannel> channel_;
};

namespace {

absl::Status IsInUse() {
  return absl::AlreadyExistsError(
      "another thread of this process talks to the launcher of the elastic job: let one thread do so");
}

}  // namespace

absl::StatusOr<bool> ElasticMember::IsMember(const EnvironmentReader& environment) {
  MutexLock lock(&mu_);
  if (!is_member_) {
    RONDA_ASSIGN_OR_RETURN(channel_, MemberChannel::Open(environment));
    is_member_ = channel_ != nullptr;
    is_known_member_.store(*is_member_, std::memory_order_relaxed);
  }
  return *is_member_;
}

absl::StatusOr<EpochPlace> ElasticMember::Join(int64_t step, const std::string& reason, absl::Duration timeout) {
  const Use use(this);
  if (use.channel() == nullptr) return IsInUse();
  JoinRequest join = {.step = step, .reason = reason};
  {
    MutexLock lock(&mu_);
    join.last_epoch = last_epoch_;
  }
  RONDA_ASSIGN_OR_RETURN(EpochPlace place, use.channel()->Join(join, timeout));
  MutexLock lock(&mu_);
  last_epoch_ = place.epoch;
  return place;
}

absl::Status ElasticMember::TellMet(int64_t epoch) {
  const Use use(this);
  return use.channel() == nullptr ? IsInUse() : use.channel()->TellMet(epoch);
}

absl::StatusOr<MemberChannel::Request> ElasticMember::Look() {
  const Use use(this);
  if (use.channel() == nullptr) return MemberChannel::Request::kNone;
  return use.channel()->Look();
}

absl::Status ElasticMember::Leave() {
  const Use use(this);
  return use.channel() == nullptr ? IsInUse() : use.channel()->Leave();
}

}  // namespace ronda
