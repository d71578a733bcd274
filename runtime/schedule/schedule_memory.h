#ifndef RONDA_RUNTIME_SCHEDULE_SCHEDULE_MEMORY_H_
#define RONDA_RUNTIME_SCHEDULE_SCHEDULE_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <list>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "runtime/negotiation/messages.h"

namespace ronda {

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
// A schedule that has not lasted is forgotten, and has to be found by the detector (schedule_planner.h) again. So a
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
    absl::flat_hash_map<CacheId, uint64_t> released;  // the number of the last list with it
    uint64_t first_list = 0;                          // tensors that were released before this list are missing
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

#endif  // RONDA_RUNTIME_SCHEDULE_SCHEDULE_MEMORY_H_
