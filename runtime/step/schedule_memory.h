// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_RUNTIME_STEP_SCHEDULE_MEMORY_H_
#define RONDA_RUNTIME_STEP_SCHEDULE_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <list>
#include <unordered_map>

#include "runtime/step/step.h"

namespace ronda {

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

  explicit ScheduleMemory(uint64_t lasting_rounds) : lasting_rounds_(lasting_rounds) {}

  // The tensor with this id runs with the next list, on all ranks of the job.
  void Release(CacheId id);
  // The next list contains something that no schedule may contain.
  void ReleaseOther() { others_ = true; }
  // Ends the list: it contains all releases since the last call. Returns the schedule that is to begin with it, or
  // nullptr. Valid until the next call of another function.
  const StepBuckets* EndList();

  // A schedule begins, which is the one that EndList returned, or another.
  void Begin(const StepBuckets& buckets);
  // The schedule that began last is unlocked.
  void Unlocked(const ScheduleProgress& progress);
  // The schedule that was unlocked last did not fit the program, even if it lasted long.
  void Distrust();

  // The id is no longer valid.
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

#endif  // RONDA_RUNTIME_STEP_SCHEDULE_MEMORY_H_
