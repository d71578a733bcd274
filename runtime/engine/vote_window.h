#ifndef RONDA_RUNTIME_ENGINE_VOTE_WINDOW_H_
#define RONDA_RUNTIME_ENGINE_VOTE_WINDOW_H_

#include <algorithm>
#include <cstdint>
#include <deque>
#include <optional>

namespace ronda {

// How far a rank may go in a locked schedule while votes are open: those on tensors in the memory of devices are
// counted there, and are known when the device has come to the bucket.
//
// What keeps the ranks together is that each knows the outcome of bucket n before it enters bucket n + `size`, counted
// from the beginning of the schedule. So after a veto of n all ranks have entered all buckets up to n + size - 1, and
// leave there. Those after n are vetoed as well, by the rank that has vetoed n and wants to leave ever since. If one of
// them is a bucket whose vote is known at once, all leave there, which is the same place for all, too. Before it leaves
// a rank awaits what is still open.
//
// A pure state machine. Thread-compatible.
class VoteWindow {
 public:
  enum class Outcome : uint8_t { kCarriedOut, kVetoed };

  // REQUIRES: size > 0.
  explicit VoteWindow(uint64_t size) : size_(size) {}

  // Whether this rank may enter another bucket.
  bool MayEnter() const {
    if (last_ && entered_ >= *last_) return false;
    return open_.empty() || entered_ + 1 < open_.front() + size_;
  }

  // This rank has entered the next bucket, whose vote is known at once, or is open.
  // REQUIRES: MayEnter().
  void Enter(Outcome outcome) {
    ++entered_;
    if (outcome == Outcome::kVetoed) EndAt(entered_);
  }
  void EnterOpen() { open_.push_back(++entered_); }

  // The first open vote has ended.
  // REQUIRES: has_open().
  void Settle(Outcome outcome) {
    if (outcome == Outcome::kVetoed) EndAt(open_.front() + size_ - 1);
    open_.pop_front();
  }

  bool has_open() const { return !open_.empty(); }
  uint64_t entered() const { return entered_; }  // buckets, so far

  // Whether a vote has been lost: from now on this rank wants to leave.
  bool is_lost() const { return last_.has_value(); }

  // Whether all ranks enter no bucket after the last one that this rank has entered, and this one knows what has become
  // of all of them.
  bool HasToLeave() const { return last_ && entered_ >= *last_ && open_.empty(); }

  friend auto operator<=>(const VoteWindow&, const VoteWindow&) = default;

 private:
  void EndAt(uint64_t last) { last_ = std::min(last, last_.value_or(last)); }

  uint64_t size_;
  uint64_t entered_ = 0;
  std::deque<uint64_t> open_;     // the numbers of the buckets whose votes are, counted from 1
  std::optional<uint64_t> last_;  // how many buckets all ranks enter
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_ENGINE_VOTE_WINDOW_H_
