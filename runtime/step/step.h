// SPDX-License-Identifier: Apache-2.0

// These files implement how a job with repeating steps stops negotiating.
//
// A training program reduces the same tensors in every step. The first steps are negotiated: each rank reports its
// tensors, and the coordinator answers with a list of buckets. This takes two messages per rank and step. A repeating
// step needs neither message, because all ranks already know what comes next. So the coordinator fixes the buckets of
// the step. In the following steps, each rank carries out these buckets again and again, without a control message.
//
// 1. The coordinator finds a repeating step. Response caches give each agreed tensor an id that is the same on all
//    ranks. The coordinator's StepObserver sees the ids of the tensors that each list releases. The StepObserver plans
//    a Schedule when several steps in a row have released exactly the same ids, or when a known step has come back. The
//    Schedule has the step's buckets, in the order in which their tensors become ready. Two tensors share a bucket only
//    if a program can submit either of them before the other is complete.
//
// 2. The schedule is locked. The coordinator sends the schedule to all ranks with a list. Each rank passes the schedule
//    and its tensors in flight to its LockedSchedule. From now on, a submission only compares two numbers and
//    increments a count: the queue stores a StepPlace for each tensor, so nothing is looked up, encoded or sent.
//
// 3. The ranks vote on each bucket. When a rank has submitted all tensors of the next bucket, it enters the bucket and
//    approves it. No rank writes an output before it knows the votes of all ranks. The vote usually travels in the
//    message that carries the data, so it costs nothing. If it cannot, the ranks first vote in a barrier. vote.h has
//    the rule.
//
// 4. The schedule is unlocked. A rank may have to do something else: a new tensor, another shape, a join, a shutdown.
//    The rank then enters the next bucket at once, without its tensors, and vetoes it. A vetoed bucket changes nothing
//    on any rank, and all ranks unlock at that point. They submit their tensors in flight to the negotiation again, in
//    the same order. The rank that vetoes also asks the other ranks to unlock, so that they enter the bucket soon. If a
//    rank is only late, the other ranks wait for it.
//
// In this folder, a rank *vetoes* a bucket. The veto makes all ranks *unlock* the schedule.
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
// All classes in this folder are pure state machines, which use neither the negotiation nor the collectives. The
// engine's StepRunner (runtime/engine/step_runner.h) passes the rank's submissions to a LockedSchedule, and the buckets
// of the LockedSchedule to the executor. docs/locked_schedule.md has the complete rules, and says why they are safe.
#ifndef RONDA_RUNTIME_STEP_STEP_H_
#define RONDA_RUNTIME_STEP_STEP_H_

#include <cstddef>
#include <cstdint>
#include <vector>

namespace ronda {

// The id of an entry in the response cache. It is the same on every rank, and is never reused for another entry.
using CacheId = uint64_t;

// For each bucket of a step, the ids of its tensors.
using StepBuckets = std::vector<std::vector<CacheId>>;

// Buckets that all ranks carry out again and again, as the tensors become ready, without control messages, until a rank
// vetoes a bucket. All ranks take part in all buckets. Each tensor occurs once.
struct Schedule {
  uint64_t number = 0;  // 1, 2, 3, ... in the order in which they begin
  StepBuckets buckets;

  friend bool operator==(const Schedule&, const Schedule&) = default;
};

// How far a schedule had been carried out when it was unlocked: the number of complete rounds, and the number of
// buckets in the unfinished round.
struct ScheduleProgress {
  uint64_t rounds = 0;
  uint64_t buckets = 0;
};

// A tensor's place in a schedule, which the queue keeps for the next submission of the tensor.
struct StepPlace {
  uint64_t schedule = 0;  // its number; 0: in none
  uint64_t version = 0;   // of the tensor's request: another version may be another tensor
  size_t bucket = 0;      // the index of its bucket
  size_t tensor = 0;      // its index in the bucket
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_STEP_STEP_H_
