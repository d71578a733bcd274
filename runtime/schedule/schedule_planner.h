#ifndef RONDA_RUNTIME_SCHEDULE_SCHEDULE_PLANNER_H_
#define RONDA_RUNTIME_SCHEDULE_SCHEDULE_PLANNER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/time/time.h"
#include "runtime/negotiation/messages.h"

namespace ronda {

// Watches the tensors that the coordinator releases, and says when a job repeats itself: when the same set of tensors
// has been released `identical_steps` times in a row and nothing else has happened.
//
// A step ends with a list, as soon as it has all tensors of the one before; or, if a tensor comes again before that, in
// front of the list that it comes in: then the run begins anew. Where a step begins does not matter: buckets of a
// schedule go round.
//
// A pure state machine. Thread-compatible.
class ScheduleDetector {
 public:
  // `identical_steps`: at least this many; 0: no step is ever found.
  explicit ScheduleDetector(int identical_steps) : base_(identical_steps), needed_(identical_steps) {}

  // Tensors that are released from now on may have waited for those released before, if these are in an earlier list.
  void Wait() { ++waits_; }

  // The tensor of this id runs with the next list, on all ranks of the job.
  void Release(CacheId id, absl::Time now);

  // The next list has something that a schedule cannot have. Its releases do not count.
  void Break();

  // All releases since the last call are in one list.
  void EndList();

  // The last list has ended a step, and enough of them were identical.
  bool complete() const { return base_ > 0 && identical_ >= needed_ && current_.empty(); }

  // A tensor of the step, as seen in the run of identical steps.
  struct Tensor {
    CacheId id;
    absl::Duration ready;           // mean time from the first release of the step to its own
    std::vector<uint64_t> batches;  // in each of the last few steps: in which list it was, and after how many waits
  };
  // In the order of the last step.
  // REQUIRES: complete().
  std::vector<Tensor> step() const;

  // The schedule has been unlocked, after all of its buckets were carried out `rounds` times.
  void Unlocked(uint64_t rounds);

  // That schedule did not fit the program: the next one takes twice as many identical steps, and so on, up to 1,024,
  // until one lasts for as many rounds as it took steps.
  void Distrust();

 private:
  struct Released {
    CacheId id;
    absl::Time time;
    uint64_t list;
    uint64_t waits;
  };
  struct Seen {
    size_t place = 0;      // in the last step
    absl::Duration total;  // from the first release of its step to its own
    std::vector<uint64_t> batches;
  };

  void Restart();
  void EndStep();
  void BeginWithThisList();
  bool EqualsLastStep() const;

  const int base_;
  int needed_;
  uint64_t waits_ = 0;
  uint64_t list_ = 0;                        // the number of the next list
  bool broken_ = false;                      // the next list does not count
  std::vector<Released> current_;            // of the step so far
  absl::flat_hash_set<CacheId> released_;    // the ids in current_
  absl::flat_hash_map<CacheId, Seen> last_;  // of the last step, and the identical ones before it
  int identical_ = 0;                        // steps that last_ has seen
};

// A tensor of a step that repeats itself, as the detector has seen it.
struct StepTensor {
  CacheId id = 0;
  absl::Duration ready;  // mean time from the beginning of the step until all ranks had submitted it
  // Tensors that are equal in any place of this have been seen together: in that step all ranks submitted each of them
  // before they could know that any of the others was complete.
  std::vector<uint64_t> batches;
  std::shared_ptr<const Response> response;
};

// Puts the tensors of a step into the buckets of a schedule (locked_schedule.h).
//
// Buckets follow the order in which tensors become ready, and hold tensors that fuse (SameKind). A bucket ends at
// `threshold` bytes; or, once it has `min_bucket_bytes`, before a tensor that comes more than `hold` after the one
// before it, so that little is left at the end of a step.
//
// Tensors share a bucket only if all that stand between the first and the last of it have been seen together. Otherwise
// one might wait for another: a bucket with both would never be ready. The order of tensors that have not been seen
// together is safe because a tensor that waits for another becomes ready after it in every step, so also on average.
// Among those that have, buckets run as they become ready: a bucket of a rare kind that takes the whole step to fill
// holds up no other.
//
// A group of tensors runs as a whole or not at all: it is never divided.
//
// A pure function of its input, kept on the coordinator rank alone.
class SchedulePlanner {
 public:
  struct Options {
    size_t threshold = size_t{64} << 20;        // bytes of input in a bucket; 0: every tensor for itself
    size_t min_bucket_bytes = size_t{1} << 20;  // worth waiting for
    absl::Duration hold = absl::Microseconds(100);
  };

  explicit SchedulePlanner(const Options& options) : options_(options) {}

  // `step` is in the order of its last run; all `batches` have the same length. nullopt if a group would be divided.
  std::optional<std::vector<std::vector<CacheId>>> Plan(const std::vector<StepTensor>& step) const;

 private:
  const Options options_;
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_SCHEDULE_SCHEDULE_PLANNER_H_
