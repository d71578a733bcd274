// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_RUNTIME_STEP_SCHEDULE_MEMORY_H_
#define RONDA_RUNTIME_STEP_SCHEDULE_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <list>
#include <unordered_map>

#include "runtime/step/step.h"

namespace ronda {

// The schedules that a job has had. A program may alternate between a few patterns, such as steps with and without a
// metric, or training and validation. When the program returns to a known pattern, the schedule of the pattern begins
// without new proof that the steps repeat.
//
// A schedule is known if it lasted for `lasting_rounds` rounds the last time it was locked. A known schedule begins
// again in one of two ways.
//  - After one negotiated step, with the list after which all of its tensors have been released. Releases count from
//    the unlock of the schedule, or from the last such list.
//  - At once, with a list that contains other tensors and no tensor of the schedule. Only the schedule that was
//    unlocked last can begin at once, and only if it was unlocked between two of its rounds. ScheduleMemory then
//    guesses that the program has only done something else for a while. If the guess was wrong, it makes no such
//    guess until the schedule has lasted again.
//
// A schedule that has not lasted is forgotten, and ScheduleDetector must detect it again. So a program that only seems
// to repeat its steps makes the ranks unlock at most once per `identical_steps` negotiated steps (ScheduleDetector).
//
// Remembers the last kCapacity schedules that were locked. A pure state machine on the coordinator.
// Thread-compatible.
class ScheduleMemory {
 public:
  static constexpr size_t kCapacity = 16;

  explicit ScheduleMemory(uint64_t lasting_rounds) : lasting_rounds_(lasting_rounds) {}

  // Records that the next list releases the tensor with this id, on all ranks of the job.
  void Release(CacheId id);
  // Records that the next list contains something that no schedule may contain.
  void ReleaseOther() { others_ = true; }
  // Ends the list, which contains all releases since the last call. Returns the schedule that must begin with this
  // list, or nullptr. The pointer is valid until the next call of another function.
  const StepBuckets* EndList();

  // Records that a schedule begins: the schedule that EndList returned, or another one.
  void Begin(const StepBuckets& buckets);
  // Records that the schedule that began last has been unlocked.
  void Unlocked(const ScheduleProgress& progress);
  // Records that the schedule that was unlocked last did not fit the program, even if it lasted long.
  void Distrust();

  // Records that the id is no longer valid.
  void Forget(CacheId id);
  void Clear();

 private:
  struct Entry {
    StepBuckets buckets;
    std::unordered_map<CacheId, uint64_t> released;  // by tensor: the number of the last list with it
    uint64_t first_list = 0;                         // a tensor is missing unless this list or a later one released it
    size_t missing = 0;
  };
  using Entries = std::list<Entry>;

  void Record(CacheId id, Entry* entry) const;
  // From the next list on, all tensors of the entry are missing again.
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

#endif  // RONDA_RUNTIME_STEP_SCHEDULE_MEMORY_H_
