// The coordinator's plans: which tensors run together, when a job repeats itself, and which buckets it then locks.
#ifndef RONDA_RUNTIME_SCHEDULE_SCHEDULE_PLANNER_H_
#define RONDA_RUNTIME_SCHEDULE_SCHEDULE_PLANNER_H_

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/time/time.h"
#include "runtime/negotiation/messages.h"

namespace ronda {

// A tensor that every rank is ready for, and its form in the response list.
struct Agreed {
  std::shared_ptr<const Response> response;
  CacheId cached_as = 0;  // named by this id; 0: spelled out
  std::vector<RankId> joined;
  TensorRequest::Absent absent = TensorRequest::Absent::kNotCounted;
};

// Groups tensors into buckets, each carried out as one collective.
//
// Tensors fuse if their operation does (OperationTraits), they are of one kind (SameKind) and lack the same joined
// ranks. Adasum weighs each tensor for itself but travels with its kind. Groups keep no tensors apart.
// A bucket holds at most `threshold` bytes, or a single tensor of any size. Tensors join the open bucket of their kind
// even when others stand between them; buckets run in the order of their first tensors.
//
// A pure function of its input, kept on the coordinator rank alone: the others are told the buckets.
class FusionPlanner {
 public:
  struct Options {
    size_t threshold = size_t{64} << 20;  // bytes of input in a bucket; 0: every tensor for itself
  };

  explicit FusionPlanner(Options options) : options_(options) {}

  // REQUIRES: element counts fit in memory (the codec and the client have checked).
  std::vector<Bucket> Plan(std::vector<Agreed> agreed) const;

 private:
  const Options options_;
};

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
// before it, so that little is left at the end of a step. On a GPU, where a bucket costs launches and events and the
// program runs ahead of the device, all buckets but the first have kDeviceFactor times as many bytes before they end.
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
  static constexpr size_t kDeviceFactor = 25;  // 25 MiB, as DistributedDataParallel has it

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

// How far a schedule was carried out when it was unlocked: whole rounds, and buckets of the round after these.
struct ScheduleProgress {
  uint64_t rounds = 0;
  uint64_t buckets = 0;
};

// The schedules that a job has had. A program alternates between a few patterns, such as steps with and without a
// metric, or training and validation; it enters a known one without proving again that it repeats itself.
//
// A schedule is known if it lasted, that is for `lasting_rounds` rounds, when it was locked last. It begins again
//  - with the list by which all of its tensors have been released since it was unlocked or released last: after one
//    negotiated step;
//  - or at once, with a list that has other tensors and none of it, if it is the last schedule and was unlocked between
//    two of its rounds: the program has done something else in between. If that turns out wrong, it is not tried again
//    until the schedule has lasted once more.
// A schedule that has not lasted is forgotten, and has to be found by the detector again. So a
// program that only seems to repeat itself unlocks at most once in as many negotiated steps as the detector asks for.
//
// Remembers the schedules that were locked last, kCapacity of them. A pure state machine on the coordinator rank.
// Thread-compatible.
class ScheduleMemory {
 public:
  static constexpr size_t kCapacity = 16;

  using Buckets = std::vector<std::vector<CacheId>>;

  explicit ScheduleMemory(uint64_t lasting_rounds) : lasting_rounds_(lasting_rounds) {}

  // The tensor of this id runs with the next list, on all ranks of the job.
  void Release(CacheId id);
  // The next list has something that a schedule cannot have.
  void ReleaseOther() { others_ = true; }
  // All releases since the last call are in one list. The schedule that is to begin with it; nullptr if none is. Valid
  // until the next call of another function.
  const Buckets* EndList();

  // A schedule begins: what EndList has returned, or another.
  void Begin(const Buckets& buckets);
  // The schedule that has begun last is unlocked.
  void Unlocked(const ScheduleProgress& progress);
  // The schedule that was unlocked last did not fit the program, however long it lasted.
  void Distrust();

  // The id is no longer valid.
  void Forget(CacheId id);
  void Clear();

 private:
  struct Entry {
    Buckets buckets;
    std::unordered_map<CacheId, uint64_t> released;  // the number of the last list with it
    uint64_t first_list = 0;                         // tensors that were released before this list are missing
    size_t missing = 0;
  };
  using Entries = std::list<Entry>;

  void Note(CacheId id, Entry* entry) const;
  // All tensors are missing, from the next list on.
  void Restart(Entry* entry) const;
  bool IsUntouched(const Entry& entry) const { return entry.missing == entry.released.size(); }

  const uint64_t lasting_rounds_;
  uint64_t list_ = 1;           // the number of the next list
  bool others_ = false;         // the next list has tensors that are not in the last schedule
  Entries known_;               // in the order in which they were locked last, the latest first
  bool is_front_last_ = false;  // the first of known_ is the last schedule, which is unlocked
  bool may_guess_ = false;      // that one may begin at once
  bool guesses_ = false;        // what EndList has returned would begin at once
  bool guessed_ = false;        // the last schedule has begun at once
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_SCHEDULE_SCHEDULE_PLANNER_H_
