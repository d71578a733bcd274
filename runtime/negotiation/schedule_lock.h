#ifndef RONDA_RUNTIME_NEGOTIATION_SCHEDULE_LOCK_H_
#define RONDA_RUNTIME_NEGOTIATION_SCHEDULE_LOCK_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "runtime/negotiation/messages.h"

namespace ronda {

// A rank's place in the locked schedule: buckets that all ranks carry out over and over without being told.
//
// A rank enters the next bucket when it has submitted all of the bucket's tensors; or, once it wants to leave, at once,
// with a veto. Every rank takes part in every bucket (steps with smaller process sets are not locked: their members
// shall not wait for ranks outside), so each learns of a veto. A vetoed bucket is carried out by no rank, and none
// enters another: the buckets before are complete everywhere, that one and those after it nowhere. Then whatever is in
// flight is reported anew.
//
// Votes on buckets in the memory of a device are counted there, and ranks go on meanwhile. So they enter a few more
// buckets before they know of a veto; but nobody knows of one bucket less than the others when it leaves, and all of
// these are vetoed, as a rank that has voted to leave does so again in each of them (Skip). See schedule_runner.h.
//
// A rank that is merely late makes the others wait, in the bucket. A rank wants to leave when something is submitted
// that is not in the schedule or differs from it, when it shuts down, or when anybody has called the schedule off: so
// do ranks that veto, and ranks that have waited in a bucket for longer than the warning time. Lastly a rank wants to
// leave when it has lacked tensors of the next bucket for a while although it has submitted others (submitted()): the
// program may have begun to do something else with a part of the tensors, and wait for that on all ranks alike, so that
// none is late for another.
//
// A pure state machine. Thread-compatible.
class ScheduleLock {
 public:
  // `buckets` are those of `schedule`, looked up.
  // REQUIRES: no bucket is empty, and no tensor is there twice (the codec has checked).
  ScheduleLock(const Schedule& schedule, std::vector<AgreedBucket> buckets);

  uint64_t number() const { return number_; }

  // Where a tensor is in the schedule: which bucket, and which of its tensors.
  struct Place {
    size_t bucket = 0;
    size_t tensor = 0;
  };

  // The tensor of this id has been submitted here. Its place; if it is not in the schedule, nullopt, and this rank
  // wants to leave. From one submission to the next its bucket must have been carried out.
  std::optional<Place> Submit(CacheId id);

  // The same for who knows the place.
  void SubmitAgain(Place place);

  // This rank wants to leave; it enters the next bucket with a veto.
  void Leave() { leaving_ = true; }
  bool leaving() const { return leaving_; }

  // The bucket to enter now; nullptr while this rank lacks tensors of it and does not want to leave.
  const AgreedBucket* Next() const;

  // The place of the bucket that is next, now or later.
  size_t next_place() const { return next_; }

  // How many tensors have been submitted here that are not carried out yet.
  size_t submitted() const { return submitted_; }

  // The bucket has been carried out, by all.
  // REQUIRES: all of its tensors have been submitted here.
  void Advance();

  // The bucket is carried out by nobody, and yet not the last that all enter: on to the next.
  // REQUIRES: this rank wants to leave.
  void Skip();

  // How often the whole schedule has been carried out.
  uint64_t rounds() const { return rounds_; }

 private:
  struct Slot {
    AgreedBucket bucket;
    size_t missing = 0;  // tensors that this rank has not submitted yet
  };

  // False: the next bucket is the first one again.
  bool MoveOn();

  const uint64_t number_;
  std::vector<Slot> slots_;
  absl::flat_hash_map<CacheId, Place> place_of_;
  size_t next_ = 0;
  size_t submitted_ = 0;
  uint64_t rounds_ = 0;
  bool leaving_ = false;
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_NEGOTIATION_SCHEDULE_LOCK_H_
