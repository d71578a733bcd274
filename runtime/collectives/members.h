#ifndef RONDA_RUNTIME_COLLECTIVES_MEMBERS_H_
#define RONDA_RUNTIME_COLLECTIVES_MEMBERS_H_

#include "runtime/base/group.h"
#include "runtime/base/types.h"
#include "runtime/collectives/communicator.h"

namespace ronda {

// Who takes part in a call, seen from one rank: the ranks of the call's group, or all of the job.
//
// A value that costs no allocation; the group must outlive it.
class Members {
 public:
  Members(const CallInfo& info, RankId rank, int job_size)
      : group_(info.group),
        size_(group_ == nullptr ? job_size : group_->size()),
        self_(group_ == nullptr ? rank : group_->PositionOf(rank).value_or(kOutside)) {}

  int size() const { return size_; }
  RankId operator[](int position) const { return group_ == nullptr ? position : (*group_)[position]; }

  // Whether this rank takes part, and its position then.
  bool IncludeSelf() const { return self_ != kOutside; }
  int self() const { return self_; }

 private:
  static constexpr int kOutside = -1;

  const Group* group_;
  int size_;
  int self_;
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_COLLECTIVES_MEMBERS_H_
