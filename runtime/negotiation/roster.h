#ifndef RONDA_RUNTIME_NEGOTIATION_ROSTER_H_
#define RONDA_RUNTIME_NEGOTIATION_ROSTER_H_

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "runtime/base/types.h"

namespace ronda {

// Who the ranks of a job are, and which of them have left.
//
// Thread-compatible.
class Roster {
 public:
  explicit Roster(int size) : identities_(size), left_(size, false) {}

  void Introduce(RankId rank, std::string identity) { identities_[rank] = std::move(identity); }

  // "rank 1 (host h, pid 42)", as far as it has introduced itself.
  std::string Describe(RankId rank) const {
    if (identities_[rank].empty()) return absl::StrCat("rank ", rank);
    return absl::StrCat("rank ", rank, " (", identities_[rank], ")");
  }

  void Leave(RankId rank, absl::Time now) {
    if (leavers_.empty()) first_leave_ = now;
    left_[rank] = true;
    leavers_.push_back(rank);
  }

  int size() const { return static_cast<int>(left_.size()); }
  bool Has(RankId rank) const { return rank >= 0 && rank < size(); }
  bool HasLeft(RankId rank) const { return left_[rank]; }
  const std::vector<RankId>& leavers() const { return leavers_; }  // in the order in which they left
  bool all_left() const { return static_cast<int>(leavers_.size()) == size(); }
  bool departing() const { return !leavers_.empty() && !all_left(); }

  // REQUIRES: a rank has left.
  absl::Time first_leave() const { return first_leave_; }

 private:
  std::vector<std::string> identities_;  // by rank; empty until it introduces itself
  std::vector<bool> left_;               // by rank
  std::vector<RankId> leavers_;
  absl::Time first_leave_;
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_NEGOTIATION_ROSTER_H_
