#ifndef RONDA_RUNTIME_SCHEDULE_UNDECIDED_BUCKETS_H_
#define RONDA_RUNTIME_SCHEDULE_UNDECIDED_BUCKETS_H_

#include <algorithm>
#include <cstdint>
#include <deque>

namespace ronda {

// The launched buckets of a device of which this rank does not know yet that they are carried out. Their votes are
// open; or they were lost, and the tensors have still to be carried out in other buckets.
//
// The trainer's streams may wait for such a bucket on the device: for its gate, which a lost vote leaves closed until
// the tensors have been carried out. So Ronda's stream must not wait for anything that may be behind a closed gate: the
// work that opens the gate comes later on that stream. The points at which tensors are ready know the last bucket that
// they may be behind, and a tensor is given to the device, and to the negotiation, when all buckets up to that one have
// been carried out. (That is late in a step, and early for the device: it has done the step before, and still has all
// work between that and the tensor before it.)
//
// A value. Thread-compatible.
class UndecidedBuckets {
 public:
  // A bucket is launched. Its number: 1, 2, ...
  uint64_t Add() {
    undecided_.push_back(++last_);
    return last_;
  }

  // The bucket has been carried out: what opens its gate is on the device.
  // REQUIRES: it was added, and not settled.
  void Settle(uint64_t number) { undecided_.erase(std::lower_bound(undecided_.begin(), undecided_.end(), number)); }

  // Whether something that may be behind bucket `number` and those before it can be waited for; 0: behind none.
  bool MayAwait(uint64_t number) const { return undecided_.empty() || number < undecided_.front(); }

  bool empty() const { return undecided_.empty(); }

  friend auto operator<=>(const UndecidedBuckets&, const UndecidedBuckets&) = default;

 private:
  uint64_t last_ = 0;
  std::deque<uint64_t> undecided_;  // ascending
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_SCHEDULE_UNDECIDED_BUCKETS_H_
