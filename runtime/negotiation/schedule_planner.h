// SPDX-License-Identifier: Apache-2.0

// How the coordinator plans: which tensors run together, when a job repeats its steps, and which buckets it then locks.
#ifndef RONDA_RUNTIME_NEGOTIATION_SCHEDULE_PLANNER_H_
#define RONDA_RUNTIME_NEGOTIATION_SCHEDULE_PLANNER_H_

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

// A tensor that every rank is ready for, and how the response list names it.
struct Agreed {
  std::shared_ptr<const Response> response;
  CacheId cached_as = 0;  // the list names it by this id; 0: it spells the response out
  std::vector<RankId> joined;
  TensorRequest::Absent absent = TensorRequest::Absent::kNotCounted;
};

// Groups tensors into buckets, each carried out as one collective.
//
// Tensors can share a bucket if their operation fuses (OperationTraits), if they are of one kind (SameKind) and if the
// same joined ranks lack them. Adasum tensors also share buckets, though each is weighted by itself. Tensors of
// different groups may share a bucket.
//
// A bucket holds at most `threshold` bytes, or a single tensor of any size. A tensor goes into the open bucket of its
// kind even if tensors of other kinds come between. The buckets run in the order of their first tensors.
//
// A pure function of its input. Only the coordinator has one; it sends the buckets to the other ranks.
class FusionPlanner {
 public:
  struct Options {
    size_t threshold = size_t{64} << 20;  // bytes of input in a bucket; 0: every tensor for itself
  };

  explicit FusionPlanner(Options options) : options_(options) {}

  // REQUIRES: element counts fit in memory (the codec and the client have checked this).
  std::vector<Bucket> Plan(std::vector<Agreed> agreed) const;

 private:
  const Options options_;
};

// Finds out when a job repeats its steps. It watches the tensors that the coordinator releases: a job repeats when the
// same set of tensors has been released `identical_steps` times in a row and nothing else has happened.
//
// A step ends at the end of the first list with which all tensors of the previous step have been released. If one
// tensor comes twice before that, the step ends before the list with the second release, and the count of identical
// steps starts again. It does not matter where a step begins, because the buckets of a schedule repeat in a circle.
//
// A pure state machine. Thread-compatible.
class ScheduleDetector {
 public:
  // `identical_steps`: the smallest number of identical steps; 0: the detector never finds a schedule.
  explicit ScheduleDetector(int identical_steps) : base_(identical_steps), needed_(identical_steps) {}

  // Tensors that are released after this call may have waited for tensors that earlier lists released.
  void Wait() { ++waits_; }

  // The tensor with this id runs with the next list, on all ranks of the job.
  void Release(CacheId id, absl::Time now);

  // The next list contains something that no schedule may contain. Its releases are ignored, and the count starts
  // again.
  void Break();

  // Ends the list: it contains all releases since the last call.
  void EndList();

  // Whether the last list ended a step, and enough steps have been identical.
  bool complete() const { return base_ > 0 && identical_ >= needed_ && current_.empty(); }

  // A tensor of the step, as observed in the identical steps.
  struct Tensor {
    CacheId id;
    absl::Duration ready;           // mean time from the first release of the step to the tensor's release
    std::vector<uint64_t> batches;  // for each of the last few steps: its list, and how many waits came before
  };
  // The tensors in the order of the last step.
  // REQUIRES: complete().
  std::vector<Tensor> step() const;

  // The schedule was unlocked, after all of its buckets were carried out `rounds` times.
  void Unlocked(uint64_t rounds);

  // That schedule did not fit the program. Each time this happens, the next schedule needs twice as many identical
  // steps, up to 1,024. The number falls back when a schedule lasts for at least as many rounds as it needed identical
  // steps.
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
    absl::Duration total;  // sum over the steps: from the first release of the step to the tensor's release
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
  bool broken_ = false;                      // the next list is ignored
  std::vector<Released> current_;            // of the step so far
  absl::flat_hash_set<CacheId> released_;    // the ids in current_
  absl::flat_hash_map<CacheId, Seen> last_;  // of the last step, and of the identical steps before it
  int identical_ = 0;                        // steps that last_ has seen
};

// A tensor of a step that repeats, as the detector has observed it.
struct StepTensor {
  CacheId id = 0;
  absl::Duration ready;  // mean time from the beginning of the step until all ranks had submitted it
  // Two tensors were seen together if their `batches` are equal at any index: in that step each rank submitted both
  // before it could know that either was complete.
  std::vector<uint64_t> batches;
  std::shared_ptr<const Response> response;
};

// Divides the tensors of a step into the buckets of a schedule (locked_schedule.h).
//
// Buckets follow the order in which tensors become ready, and hold tensors that fuse (SameKind). A bucket ends when it
// has `threshold` bytes. A bucket with at least `min_bucket_bytes` also ends if the next tensor becomes ready more than
// `hold` after the previous one: so little work is left at the end of a step. On a GPU a bucket costs launches and
// events, and the program runs ahead of the device. There each bucket needs kDeviceFactor times as many bytes before it
// may end, except the first one of tensors that were seen together.
//
// Tensors share a bucket only if all tensors from the first to the last of it have been seen together. Otherwise one
// might wait for another, and a bucket with both would never be ready. If tensors have not been seen together, their
// order is safe: a tensor that waits for another becomes ready after it in every step, and so also on average. If they
// have been seen together, their buckets run in the order in which they become ready: a bucket of a rare kind, which
// fills up only at the end of the step, then delays no other bucket.
//
// A group of tensors runs completely or not at all, so it is never divided.
//
// A pure function of its input, only on the coordinator.
class SchedulePlanner {
 public:
  static constexpr size_t kDeviceFactor = 25;  // 25 MiB, as DistributedDataParallel has it

  struct Options {
    size_t threshold = size_t{64} << 20;        // bytes of input in a bucket; 0: every tensor for itself
    size_t min_bucket_bytes = size_t{1} << 20;  // a smaller bucket waits for more tensors
    absl::Duration hold = absl::Microseconds(100);
  };

  explicit SchedulePlanner(const Options& options) : options_(options) {}

  // `step` is in the order of its last run; all `batches` have the same length. Returns nullopt if a group would be
  // divided.
  std::optional<std::vector<std::vector<CacheId>>> Plan(const std::vector<StepTensor>& step) const;

 private:
  const Options options_;
};

// How far a schedule was carried out when it was unlocked: whole rounds, and buckets of the unfinished round.
struct ScheduleProgress {
  uint64_t rounds = 0;
  uint64_t buckets = 0;
};

// The schedules that a job has had. A program alternates between a few patterns, such as steps with and without a
// metric, or training and validation. When it returns to a known pattern, the schedule begins without a new proof that
// the steps repeat.
//
// A schedule is known if it lasted for `lasting_rounds` rounds when it was locked last. It begins again in one of two
// ways.
//  - After one negotiated step: with the list that completes the release of all its tensors, counted since it was
//    unlocked or since the last such list.
//  - At once: with a list that contains other tensors and none of the schedule's. This needs the last schedule to have
//    been unlocked between two of its rounds: the program has then only done something else in between. If this guess
//    is wrong, it is not repeated until the schedule has lasted again.
//
// A schedule that has not lasted is forgotten; the detector has to find it again. So a program that only seems to
// repeat unlocks at most once per `identical_steps` negotiated steps (ScheduleDetector).
//
// Remembers the last kCapacity schedules that were locked. A pure state machine on the coordinator. Thread-compatible.
class ScheduleMemory {
 public:
  static constexpr size_t kCapacity = 16;

  using Buckets = std::vector<std::vector<CacheId>>;

  explicit ScheduleMemory(uint64_t lasting_rounds) : lasting_rounds_(lasting_rounds) {}

  // The tensor with this id runs with the next list, on all ranks of the job.
  void Release(CacheId id);
  // The next list contains something that no schedule may contain.
  void ReleaseOther() { others_ = true; }
  // Ends the list: it contains all releases since the last call. Returns the schedule that is to begin with it, or
  // nullptr. Valid until the next call of another function.
  const Buckets* EndList();

  // A schedule begins: the one that EndList returned, or another.
  void Begin(const Buckets& buckets);
  // The schedule that began last is unlocked.
  void Unlocked(const ScheduleProgress& progress);
  // The schedule that was unlocked last did not fit the program, even if it lasted long.
  void Distrust();

  // The id is no longer valid.
  void Forget(CacheId id);
  void Clear();

 private:
  struct Entry {
    Buckets buckets;
    std::unordered_map<CacheId, uint64_t> released;  // by tensor: the number of the last list with it
    uint64_t first_list = 0;                         // a tensor is missing unless this list or a later one released it
    size_t missing = 0;
  };
  using Entries = std::list<Entry>;

  void Note(CacheId id, Entry* entry) const;
  // From the next list on, all tensors are missing.
  void Restart(Entry* entry) const;
  bool IsUntouched(const Entry& entry) const { return entry.missing == entry.released.size(); }

  const uint64_t lasting_rounds_;
  uint64_t list_ = 1;           // the number of the next list
  bool others_ = false;         // the next list has tensors that are not in the last schedule
  Entries known_;               // in the order of their last lock, the latest first
  bool is_front_last_ = false;  // the first of known_ is the schedule that was unlocked last
  bool may_guess_ = false;      // that schedule may begin at once
  bool guesses_ = false;        // the schedule that EndList returned would begin at once
  bool guessed_ = false;        // the last schedule has begun at once
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_NEGOTIATION_SCHEDULE_PLANNER_H_
