// SPDX-License-Identifier: Apache-2.0

// Tests the negotiation with a mixture of reports that a correct rank could send and reports that no correct rank
// sends.
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "runtime/negotiation/messages.h"
#include "runtime/negotiation/negotiator.h"
#include "runtime/negotiation/reporter.h"
#include "runtime/step/locked_schedule.h"
#include "tests/fuzz/fuzz_input.h"

namespace ronda::fuzz {
namespace {

constexpr int kWorldSize = 3;
constexpr int kNames = 3;
constexpr size_t kCacheCapacity = 2;  // small, so that entries are evicted

// Reads a request. Each field has few alternatives, so that requests often match, and often differ in only one field.
TensorRequest ReadRequest(FuzzInput& input) {
  TensorRequest request{.name = std::string(1, static_cast<char>('a' + input.Below(kNames))),
                        .process_set = static_cast<ProcessSetId>(input.Below(3)),
                        .op = *OpTypeFromInt(input.Below(kOpTypeCount)),
                        .reduction = *ReductionFromInt(input.Below(kReductionCount)),
                        .root = input.Below(kWorldSize + 1),
                        .receiver = input.Below(kWorldSize + 1)};
  for (int i = input.Below(3); i > 0; --i) request.shape.push_back(input.Below(3));
  if (request.op == OpType::kJoin) request.name = std::string(kJoinName);
  if (input.Below(4) == 0) {
    request.group = std::string(1, static_cast<char>('g' + input.Below(2)));
    request.group_size = 1 + input.Below(3);
  }
  if (input.Below(8) == 0) request.limits = WaitLimits{absl::Seconds(input.Below(9)), absl::Seconds(input.Below(9))};
  for (RankId rank = 0; rank < kWorldSize; ++rank) {
    if (input.Below(2) == 1) request.members.push_back(rank);
  }
  request.subject = static_cast<ProcessSetId>(input.Below(3));
  request.absent = input.Below(2) == 0 ? TensorRequest::Absent::kNotCounted : TensorRequest::Absent::kCountedAsZeros;
  return request;
}

class Job {
 public:
  Job() {
    for (RankId rank = 0; rank < kWorldSize; ++rank) {
      reporters_.emplace_back(Reporter::Options{.rank = rank, .world_size = kWorldSize, .identity = "host h, pid 1"});
    }
  }

  // Returns false if a message was refused, because the job has then failed.
  bool Step(FuzzInput& input) {
    const RankId rank = input.Below(kWorldSize);
    switch (input.Below(7)) {
      case 0:
        SubmitIfAllowed(rank, ReadRequest(input));
        return true;
      case 1:
        return schedules_[rank].locked() || !reporters_[rank].has_news() || Send(rank, reporters_[rank].TakeReport());
      case 2:
        return Send(rank, ReadReport(input));
      case 3:
        return ApplyResponses();
      case 4:
        now_ += absl::Seconds(input.Below(20));
        FailOverdue();
        return true;
      case 5:
        reporters_[rank].ShutDown();
        schedules_[rank].VetoNext();
        return true;
      default:
        VoteOnBucket();
        return true;
    }
  }

 private:
  RankReport ReadReport(FuzzInput& input) {
    RankReport report;
    for (int i = input.Below(3); i > 0; --i) report.cached.push_back(input.Number<uint8_t>());
    for (int i = input.Below(2); i > 0; --i) {
      const CacheId id = input.Number<uint8_t>();
      report.repeated.push_back({id, ReadRequest(input)});
    }
    for (int i = input.Below(4); i > 0; --i) report.requests.push_back(ReadRequest(input));
    if (input.Below(8) == 0) report.presence = RankReport::Presence::kShuttingDown;
    report.schedule = static_cast<uint64_t>(input.Below(3));
    if (input.Below(2) == 0) report.waited = RankReport::Waited::kNo;
    return report;
  }

  // Submits a request, unless the engine would not submit it.
  void SubmitIfAllowed(RankId rank, TensorRequest request) {
    const auto members = reporters_[rank].process_sets().Find(request.process_set);
    if (members == nullptr || !members->Contains(rank)) return;
    if (!schedules_[rank].locked()) return reporters_[rank].Submit(request);
    if (!in_schedule_[rank].insert(TensorKey(request.key())).second) return;
    schedules_[rank].Submit(reporters_[rank].Find(request));
  }

  bool Send(RankId rank, const RankReport& report) {
    const auto received = DecodeRankReport(Encode(report), kCacheCapacity);
    RequireOkOrRefused(received.status());
    if (!received.ok()) return false;
    const absl::Status taken = negotiator_.Add(rank, *received, now_);
    RequireOkOrRefused(taken);
    return taken.ok();
  }

  bool ApplyResponses() {
    ResponseList list = negotiator_.TakeResponses();
    list.settings = std::exchange(settings_, std::nullopt);
    if (list.empty()) return true;
    const auto received = DecodeResponseList(Encode(list), kCacheCapacity);
    Require(received.ok(), "every rank can decode the messages of the coordinator");
    for (RankId rank = 0; rank < kWorldSize; ++rank) {
      if (schedules_[rank].locked()) return false;
      auto work = reporters_[rank].Apply(*received);
      RequireOkOrRefused(work.status());
      if (!work.ok()) return false;
      if (!work->schedule) continue;
      schedules_[rank].Begin(work->schedule->schedule, now_);
      buckets_[rank] = std::move(work->schedule->buckets);
    }
    return received->job == ResponseList::Job::kGoesOn;
  }

  // If every rank can enter the next bucket of the schedule, makes all of them enter it.
  void VoteOnBucket() {
    if (!schedules_[0].locked()) return;
    bool veto = false;
    for (LockedSchedule& schedule : schedules_) {
      Require(schedule.locked(), "all ranks are in the schedule or none is");
      if (!schedule.Next().has_value()) return;
      veto |= schedule.unlocking();
    }
    const ScheduleProgress progress = schedules_[0].progress();
    for (RankId rank = 0; rank < kWorldSize; ++rank) {
      LockedSchedule& schedule = schedules_[rank];
      if (veto) {
        schedule.Enter(Ballot::Result::kVetoed, now_);
        schedule.Unlock();
        in_schedule_[rank].clear();
        continue;
      }
      for (const auto& response : buckets_[rank][*schedule.Next()].responses) {
        in_schedule_[rank].erase(TensorKey(response->request.key()));
      }
      schedule.Enter(Ballot::Result::kCarriedOut, now_);
    }
    if (veto) negotiator_.Unlock(progress);
  }

  void FailOverdue() {
    for (const Waiting& waiting : negotiator_.waiting().Overdue(now_)) {
      Require(!waiting.present.empty(), "some rank waits for an overdue tensor");
      for (RankId rank : waiting.missing) {
        Require(!negotiator_.Describe(rank).empty(), "late ranks are described");
        negotiator_.waiting().SubmittedBy(rank, 2);
      }
      if (now_ - waiting.since < waiting.limits.deadline) continue;
      negotiator_.Fail(waiting.tensor, absl::DeadlineExceededError("late"));
    }
  }

  const WaitLimits limits_ = {absl::Seconds(5), absl::Seconds(10)};
  std::optional<JobSettings> settings_ = JobSettings{.cache_capacity = kCacheCapacity, .limits = limits_};
  Negotiator negotiator_{{.world_size = kWorldSize,
                          .cache_capacity = kCacheCapacity,
                          .limits = limits_,
                          .schedule = {.identical_steps = 1}}};
  std::vector<Reporter> reporters_;
  LockedSchedule schedules_[kWorldSize];
  std::vector<AgreedBucket> buckets_[kWorldSize];  // of the schedule
  std::set<TensorKey> in_schedule_[kWorldSize];    // the submissions of each rank to the locked schedule
  absl::Time now_ = absl::UnixEpoch();
};

}  // namespace
}  // namespace ronda::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  ronda::fuzz::FuzzInput input(data, size);
  ronda::fuzz::Job job;
  while (!input.empty() && job.Step(input)) {
  }
  return 0;
}
