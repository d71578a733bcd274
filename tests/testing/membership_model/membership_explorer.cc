// SPDX-License-Identifier: Apache-2.0

#include "tests/testing/membership_model/membership_explorer.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace ronda {

MembershipExplorer::MembershipExplorer(MembershipWorld::Scope scope) : scope_(std::move(scope)) {
  open_.push_back({MembershipWorld(&scope_), -1});
}

MembershipCensus MembershipExplorer::Explore() {
  while (!open_.empty() && census_.problem.empty()) {
    const Visit visit = std::move(open_.back());
    open_.pop_back();
    ++census_.states;
    census_.most_epochs = std::max(census_.most_epochs, visit.world.newest_epoch() + 1);
    if (visit.world.is_over()) {
      ++(visit.world.has_succeeded() ? census_.successes : census_.failures);
    } else {
      GoOn(visit);
    }
  }
  return census_;
}

void MembershipExplorer::GoOn(const Visit& visit) {
  const std::vector<MembershipWorld::Move> moves = visit.world.Moves();
  if (moves.empty()) return Report("everybody waits for ever", visit);
  for (const MembershipWorld::Move& move : moves) {
    Visit next = {visit.world, static_cast<int64_t>(steps_.size())};
    next.world.Do(move);
    const bool has_problem = next.world.problem() != nullptr;
    if (!has_problem && !seen_.insert(next.world.Fingerprint()).second) continue;
    steps_.push_back({visit.step, move});
    if (has_problem) return Report(next.world.problem(), next);
    open_.push_back(std::move(next));
  }
}

void MembershipExplorer::Report(const char* problem, const Visit& visit) {
  std::string history;
  for (int64_t step = visit.step; step >= 0; step = steps_[static_cast<size_t>(step)].before) {
    history = absl::StrCat("\n  ", MembershipWorld::Describe(steps_[static_cast<size_t>(step)].move), history);
  }
  census_.problem = absl::StrCat(problem, ":", history, "\n", visit.world.Describe());
}

}  // namespace ronda
