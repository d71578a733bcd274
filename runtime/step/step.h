// SPDX-License-Identifier: Apache-2.0

// The step: how a job that repeats itself stops negotiating.
//
// A training program reduces the same tensors in every step. The first steps are negotiated: each rank reports its
// tensors, and the coordinator answers with a list of buckets. That takes two messages a rank. A step that repeats
// needs neither message, because all ranks already know what comes next. So the coordinator fixes the buckets of the
// step, and from then on each rank carries them out, again and again, without a control message.
//
// 1. A step is found. Response caches give each agreed tensor an id, the same on all ranks. The coordinator's
//    StepObserver sees the ids that each list releases. When the same ids have come in several steps in a row and
//    nothing else has, or when a known step has come back, it plans a Schedule: the step's buckets, in the order in
//    which their tensors become ready. Two tensors share a bucket only if neither can wait for the other.
//
// 2. The schedule is locked. The coordinator's list carries it to all ranks. Each rank gives it to its LockedSchedule,
//    with the tensors that are in flight. A submission now costs a comparison of two numbers and a counter: the queue
//    keeps a StepPlace with each tensor, so nothing is looked up, encoded or sent.
//
// 3. A vote goes with each bucket. A rank enters the next bucket when it has submitted all tensors of it, with a vote
//    to approve. No rank writes an output before it knows the votes of all ranks. The vote usually travels in the
//    message that carries the data and so costs nothing. Where that is not possible, the ranks vote first, in a
//    barrier. vote.h has the rule.
//
// 4. The schedule is unlocked. A rank that has to do anything else (a new tensor, another shape, a join, a shutdown)
//    enters the next bucket at once, without its tensors, and vetoes it. The bucket then changes nothing on any rank,
//    and all ranks unlock at that point. They submit their tensors in flight to the negotiation again, in the same
//    order. The rank also sends a request to unlock to the other ranks, so that they come to the bucket soon. If a rank
//    is only late, the other ranks wait for it.
//
// Two verbs tell this apart: a rank *vetoes* a bucket, and so makes all ranks *unlock* the schedule.
//
//   step.h                this page, and what the others share
//   vote.h                a vote, and the rule when it goes with the data
//   flags.h               questions of each step, which travel with the votes
//   locked_schedule.h     the schedule as one rank sees it: what is submitted, what is next, when to veto
//   step_observer.h       the coordinator's part, for the Negotiator: when to lock which schedule
//   schedule_detector.h   when a job repeats its steps
//   schedule_planner.h    which tensors of a step share a bucket
//   schedule_memory.h     the schedules that a job has had, which begin again sooner
//
// All of these are pure state machines, below the negotiation and the collectives. The engine's StepRunner
// (runtime/engine/step_runner.h) gives a LockedSchedule the rank's submissions, and its buckets to the executor.
// docs/locked_schedule.md has the rules in full, and the argument why they are safe.
#ifndef RONDA_RUNTIME_STEP_STEP_H_
#define RONDA_RUNTIME_STEP_STEP_H_

#include <cstddef>
#include <cstdint>
#include <vector>

namespace ronda {

// The id of an entry of the response cache; the same on every rank, never used twice.
using CacheId = uint64_t;

// The tensors of each bucket of a step.
using StepBuckets = std::vector<std::vector<CacheId>>;

// Buckets that from now on all ranks carry out again and again, as their tensors become ready and without control
// messages, until a rank vetoes one. All ranks take part in all of them. Each tensor occurs once.
struct Schedule {
  uint64_t number = 0;  // 1, 2, 3, ... in the order in which they begin
  StepBuckets buckets;

  friend bool operator==(const Schedule&, const Schedule&) = default;
};

// How far a schedule was carried out when it was unlocked: whole rounds, and buckets of the unfinished round.
struct ScheduleProgress {
  uint64_t rounds = 0;
  uint64_t buckets = 0;
};

// Where a tensor is in a schedule. The queue keeps this place with the tensor for the next submission.
struct StepPlace {
  uint64_t schedule = 0;  // its number; 0: in none
  uint64_t version = 0;   // of the tensor's request: another version may be another tensor
  size_t bucket = 0;      // the index of its bucket
  size_t tensor = 0;      // its index in the bucket
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_STEP_STEP_H_
