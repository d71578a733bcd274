// SPDX-License-Identifier: Apache-2.0

#include "bench/negotiation/simulated_job.h"

#include <time.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "runtime/base/logging.h"
#include "runtime/negotiation/messages.h"

namespace ronda::bench {
namespace {

double ThreadMicroseconds() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e6 + static_cast<double>(now.tv_nsec) * 1e-3;
}

constexpr size_t kCacheCapacity = 1024;
constexpr int kIdenticalSteps = 4;  // steps after which a schedule begins, as in the runtime's defaults

}  // namespace

SimulatedJob::SimulatedJob(int ranks, Locking locking)
    : negotiator_({.world_size = ranks,
                   .cache_capacity = kCacheCapacity,
                   .schedule = {.identical_steps = locking == Locking::kOn ? kIdenticalSteps : 0}}) {
  for (RankId rank = 0; rank < ranks; ++rank) {
    ranks_.push_back(std::make_unique<Rank>(Rank{.reporter = Reporter({.rank = rank, .world_size = ranks})}));
  }
  ResponseList first;
  first.settings = {.cache_capacity = kCacheCapacity};
  for (const auto& rank : ranks_) rank->Apply(first, now_);
}

void SimulatedJob::Rank::Submit(const TensorRequest& request) {
  if (schedule.locked()) {
    schedule.Submit(reporter.Find(request));
  } else {
    reporter.Submit(request);
  }
}

void SimulatedJob::Rank::Apply(const ResponseList& list, absl::Time now) {
  auto work = reporter.Apply(list);
  RONDA_CHECK(work.ok());
  if (work->schedule) schedule.Begin(work->schedule->schedule, now);
}

NegotiationCost SimulatedJob::Step(const Submissions& submissions) {
  NegotiationCost cost;
  now_ += absl::Milliseconds(1);
  const double start = ThreadMicroseconds();
  SubmitAll(submissions);
  if (locked()) CarryOutBuckets();
  if (locked() && ranks_.front()->schedule.unlocking()) Unlock(submissions);
  cost.other_us = (ThreadMicroseconds() - start) / static_cast<double>(ranks_.size());
  if (!locked()) Negotiate(&cost);
  return cost;
}

void SimulatedJob::SubmitAll(const Submissions& submissions) {
  for (size_t rank = 0; rank < ranks_.size(); ++rank) {
    for (const TensorRequest* request : submissions(static_cast<RankId>(rank))) ranks_[rank]->Submit(*request);
  }
}

// Runs buckets until the step ends, or until the ranks vote to unlock the schedule. In this simulation, all ranks cast
// the same vote on the same bucket.
void SimulatedJob::CarryOutBuckets() {
  for (const auto& rank : ranks_) {
    LockedSchedule& schedule = rank->schedule;
    while (!schedule.unlocking() && schedule.Next().has_value()) {
      schedule.Enter(Ballot::Result::kCarriedOut, now_);
    }
  }
}

void SimulatedJob::Unlock(const Submissions& submissions) {
  negotiator_.Unlock(ranks_.front()->schedule.progress());
  for (const auto& rank : ranks_) {
    rank->schedule.Enter(Ballot::Result::kVetoed, now_);
    rank->schedule.Unlock();
  }
  SubmitAll(submissions);
}

void SimulatedJob::Negotiate(NegotiationCost* cost) {
  const double start = ThreadMicroseconds();
  std::vector<std::string> reports;
  for (const auto& rank : ranks_) reports.push_back(Encode(rank->reporter.TakeReport()));
  const double before_coordinating = ThreadMicroseconds();
  const std::string list = Coordinate(reports);
  const double before_applying = ThreadMicroseconds();
  for (const auto& rank : ranks_) rank->Apply(*DecodeResponseList(list, kCacheCapacity), now_);
  const double end = ThreadMicroseconds();
  cost->coordinator_us = before_applying - before_coordinating;
  cost->other_us += (before_coordinating - start + end - before_applying) / static_cast<double>(ranks_.size());
  for (const std::string& report : reports) cost->report_bytes = std::max(cost->report_bytes, report.size());
  cost->list_bytes = list.size();
  cost->messages_up = 1;
  cost->messages_down = 1;
}

std::string SimulatedJob::Coordinate(const std::vector<std::string>& reports) {
  for (size_t rank = 0; rank < reports.size(); ++rank) {
    const auto report = DecodeRankReport(reports[rank], kCacheCapacity);
    RONDA_CHECK(report.ok() && negotiator_.Add(static_cast<RankId>(rank), *report, now_).ok());
  }
  const ResponseList list = negotiator_.TakeResponses();
  RONDA_CHECK(!negotiator_.anything_waits());
  return Encode(list);
}

std::vector<TensorRequest> GradientsOf(const ModelShapes& model) {
  std::vector<TensorRequest> requests;
  for (const Parameter& parameter : model.parameters) {
    requests.push_back({.name = absl::StrCat("gradient/", parameter.name),
                        .shape = Shape(parameter.shape.begin(), parameter.shape.end()),
                        .reduction = Reduction::kAverage});
  }
  std::reverse(requests.begin(), requests.end());
  return requests;
}

}  // namespace ronda::bench
