// SPDX-License-Identifier: Apache-2.0

#include "runtime/negotiation/deadlock_detector.h"

#include <algorithm>
#include <cstddef>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "runtime/base/peer.h"

namespace ronda {
namespace {

constexpr size_t kTensorsNamed = 4;
constexpr size_t kRanksIdentified = 4;

bool Intersect(const std::vector<RankId>& a, const std::vector<RankId>& b) {
  return std::any_of(a.begin(), a.end(), [&](RankId rank) { return std::binary_search(b.begin(), b.end(), rank); });
}

// Returns, for example, "rank 0 (host h, pid 42), rank 1 (host h, pid 43)", or "ranks 0 - 63".
std::string Identify(const WaitingView& view, const std::vector<RankId>& ranks) {
  if (ranks.size() > kRanksIdentified) return NameRanks(ranks);
  return absl::StrJoin(ranks, ", ", [&](std::string* out, RankId rank) { absl::StrAppend(out, view.Describe(rank)); });
}

// Returns, for example, "tensor 'a' (allreduce of float32 [3]): submitted by rank 0, not by rank 1".
std::string DescribeLack(const Waiting& tensor) {
  if (tensor.missing.empty()) return absl::StrCat(tensor.description, " lacks the rest");
  return absl::StrCat(tensor.description, ": submitted by ", NameRanks(tensor.present), ", not by ",
                      NameRanks(tensor.missing));
}

}  // namespace

void DeadlockDetector::Record(RankId rank, RankReport::Program program) {
  const bool waits = program == RankReport::Program::kWaits;
  has_news_ = has_news_ || waits;
  if (waits_[rank] == waits) return;
  waits_[rank] = waits;
  waiting_ += waits ? 1 : -1;
}

void DeadlockDetector::RecordDecisions() {
  if (std::exchange(waiting_, 0) > 0) waits_.assign(waits_.size(), false);
}

// Returns the largest set of waiting ranks in which each rank has submitted a tensor, and no such tensor can become
// complete without a further submission from a rank of the set.
std::vector<RankId> DeadlockDetector::StuckRanks(absl::Span<const Waiting> tensors) const {
  std::vector<RankId> stuck;
  for (RankId rank = 0; rank < static_cast<RankId>(waits_.size()); ++rank) {
    if (waits_[rank]) stuck.push_back(rank);
  }
  while (true) {
    std::set<RankId> have_submitted, may_go_on;
    for (const Waiting& tensor : tensors) {
      // If a group is held, all ranks have submitted its concluded tensors, and must still submit the rest of the
      // group.
      const bool lacks_stuck_rank = Intersect(tensor.missing.empty() ? tensor.present : tensor.missing, stuck);
      (lacks_stuck_rank ? have_submitted : may_go_on).insert(tensor.present.begin(), tensor.present.end());
    }
    const auto is_free = [&](RankId rank) { return !have_submitted.contains(rank) || may_go_on.contains(rank); };
    const auto end = std::remove_if(stuck.begin(), stuck.end(), is_free);
    if (end == stuck.end()) return stuck;
    stuck.erase(end, stuck.end());
  }
}

std::string DeadlockDetector::Inspect(const WaitingView& view) {
  if (!std::exchange(has_news_, false)) return "";
  const std::vector<Waiting> tensors = view.All();
  const std::vector<RankId> stuck = StuckRanks(tensors);
  std::vector<TensorKey> keys;
  std::vector<std::string> lacks;
  for (const Waiting& tensor : tensors) {
    if (!Intersect(tensor.present, stuck)) continue;
    keys.push_back(tensor.tensor);
    lacks.push_back(DescribeLack(tensor));
  }
  if (keys == reported_) return "";
  reported_ = std::move(keys);
  if (lacks.empty()) return "";
  const size_t more = lacks.size() - std::min(lacks.size(), kTensorsNamed);
  lacks.resize(lacks.size() - more);
  if (more > 0) lacks.push_back(absl::StrCat(more, " more"));
  return absl::StrCat(
      "deadlock of ", Identify(view, stuck), ", which ",
      stuck.size() == 1 ? "waits for itself: " : "wait for each other: ", absl::StrJoin(lacks, "; "),
      ". Unless another thread submits what is missing, these operations fail at their deadline. ",
      "Submit the same operations in the same order on all ranks, or wait only after all are submitted");
}

}  // namespace ronda
