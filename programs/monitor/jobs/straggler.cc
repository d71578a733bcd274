// SPDX-License-Identifier: Apache-2.0

#include "programs/monitor/jobs/straggler.h"

#include <algorithm>

namespace ronda {

void StragglerWatch::Add(const MeasuredBucket& bucket) {
  if (running_.has_value() && bucket.step > running_->number) EndStep(bucket.first);
  if (!running_.has_value()) running_ = RunningStep{.number = bucket.step, .begin = bucket.first, .waited = {}};
  running_->waited[bucket.last] += bucket.waited;
}

void StragglerWatch::EndStep(FlightTime now) {
  const auto by_wait = [](const auto& a, const auto& b) { return a.second < b.second; };
  const auto& [last, waited] = *std::max_element(running_->waited.begin(), running_->waited.end(), by_wait);
  steps_.push_back({.begin = running_->begin, .length = now - running_->begin, .last = last, .waited = waited});
  if (steps_.size() > kChronicWindows * kWindowSteps) steps_.pop_front();
  running_.reset();
}

StragglerWatch::Window StragglerWatch::JudgeWindow(size_t begin, size_t end) const {
  struct Share {
    int steps = 0;
    absl::Duration waited;
    FlightTime since;
  };
  std::map<RankId, Share> shares;
  Window window;
  absl::Duration waited;
  for (size_t i = begin; i < end; ++i) {
    Share& share = shares[steps_[i].last];
    if (share.steps++ == 0) share.since = steps_[i].begin;
    share.waited += steps_[i].waited;
    waited += steps_[i].waited;
    window.span += steps_[i].length;
  }
  const auto others = static_cast<int64_t>(std::max<size_t>(ranks_, 2) - 1);
  for (const auto& [rank, share] : shares) {
    const absl::Duration beyond = share.waited - (waited - share.waited) / others;
    if (2 * static_cast<size_t>(share.steps) < end - begin || beyond <= kStragglersShare * window.span) continue;
    window.straggler = rank;
    window.last_steps = share.steps;
    window.waited = share.waited;
    window.since = share.since;
  }
  return window;
}

// An event is a wait of more than 5 % of a whole window's duration. If the window is incomplete, the duration of a
// whole window is estimated.
StragglerVerdict StragglerWatch::FindEvent(size_t begin, const Window& window) const {
  const auto by_wait = [](const Step& a, const Step& b) { return a.waited < b.waited; };
  const Step& longest = *std::max_element(steps_.begin() + static_cast<ptrdiff_t>(begin), steps_.end(), by_wait);
  const auto steps = static_cast<int64_t>(steps_.size() - begin);
  if (longest.waited <= kStragglersShare * kWindowSteps * (window.span / steps)) return {};
  return {.kind = StragglerVerdict::Kind::kEvent,
          .rank = longest.last,
          .steps = static_cast<int>(steps),
          .last_steps = 1,
          .waited = longest.waited,
          .span = window.span,
          .since = longest.begin};
}

StragglerVerdict StragglerWatch::Judge() const {
  if (steps_.size() < kFewestSteps) return {};
  size_t end = steps_.size(), begin = end - std::min(end, kWindowSteps);
  const Window newest = JudgeWindow(begin, end);
  if (!newest.straggler.has_value()) return FindEvent(begin, newest);
  StragglerVerdict verdict = {.kind = StragglerVerdict::Kind::kOneOff,
                              .rank = *newest.straggler,
                              .steps = static_cast<int>(end - begin),
                              .last_steps = newest.last_steps,
                              .waited = newest.waited,
                              .span = newest.span,
                              .since = newest.since};
  if (steps_.size() < kChronicWindows * kWindowSteps) return verdict;
  StragglerVerdict chronic = verdict;
  chronic.kind = StragglerVerdict::Kind::kChronic;
  while (begin > 0) {
    end = begin;
    begin -= kWindowSteps;
    const Window earlier = JudgeWindow(begin, end);
    if (earlier.straggler != newest.straggler) return verdict;
    chronic.steps += static_cast<int>(kWindowSteps);
    chronic.last_steps += earlier.last_steps;
    chronic.waited += earlier.waited;
    chronic.span += earlier.span;
    chronic.since = earlier.since;
  }
  return chronic;
}

bool StragglerAlarm::IsNews(const StragglerVerdict& verdict, FlightTime now) {
  if (verdict.kind != StragglerVerdict::Kind::kChronic) return false;
  const auto [seen, is_first] = last_seen_.try_emplace(verdict.rank, now);
  const bool is_back = now - seen->second > kForgetting;
  seen->second = now;
  return is_first || is_back;
}

}  // namespace ronda
