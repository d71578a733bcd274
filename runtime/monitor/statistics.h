// SPDX-License-Identifier: Apache-2.0

// The numbers by which a rank describes its own work.
#ifndef RONDA_RUNTIME_MONITOR_STATISTICS_H_
#define RONDA_RUNTIME_MONITOR_STATISTICS_H_

#include <atomic>
#include <cstdint>

namespace ronda {

// The macro has one row per number, in the order of ronda_statistics (client/ronda.h). The C ABI appends new numbers at
// the end of ronda_statistics. The counters, the copy for readers, and the struct of the C ABI are all generated from
// these rows.
//
//   reports_sent        control messages from this rank to rank 0
//   reports_received    on rank 0: reports of all ranks, its own included
//   lists_sent          on rank 0: control messages to all ranks
//   lists_received      control messages from rank 0
//   buckets_agreed      buckets carried out because a list ordered them
//   buckets_scheduled   buckets carried out because the locked schedule has them
//   schedules_begun     locked schedules
//   schedules_left      of these, those that a veto has unlocked
//   own_vetoes          of schedules_left, those in which this rank had a veto
//   schedule_rounds     locked schedules carried out from beginning to end
//   steps               a step ends when a tensor that it already has is submitted again
//   tensors             carried out with this rank's part in them
//   payload_bytes       of these tensors, in their own dtype
//   wire_bytes          of these tensors, in the format in which they travel
//   bucket_nanoseconds  in buckets, from the later of two times (this rank was ready for the bucket; it was done with
//                       the previous one) to the bucket's end. Includes waits for other ranks and transfers
//   tensors_in_flight   submitted and not yet carried out; the only number that also falls
//   exposed_nanoseconds in which at least one thread of the program waited for a tensor. In a rank's words these are
//                       CheapTicks(), which Read(const RankWords&) converts
#define RONDA_STATISTICS_TABLE(ROW) \
  ROW(reports_sent)                 \
  ROW(reports_received)             \
  ROW(lists_sent)                   \
  ROW(lists_received)               \
  ROW(buckets_agreed)               \
  ROW(buckets_scheduled)            \
  ROW(schedules_begun)              \
  ROW(schedules_left)               \
  ROW(own_vetoes)                   \
  ROW(schedule_rounds)              \
  ROW(steps)                        \
  ROW(tensors)                      \
  ROW(payload_bytes)                \
  ROW(wire_bytes)                   \
  ROW(bucket_nanoseconds)           \
  ROW(tensors_in_flight)            \
  ROW(exposed_nanoseconds)

// A number that only one thread at a time increases. Any thread may read it.
class Counter {
 public:
  void Add(uint64_t more = 1) {
    count_.store(count_.load(std::memory_order_relaxed) + more, std::memory_order_relaxed);
  }
  void Set(uint64_t count) { count_.store(count, std::memory_order_relaxed); }
  operator uint64_t() const { return count_.load(std::memory_order_relaxed); }  // NOLINT(google-explicit-constructor)

 private:
  std::atomic<uint64_t> count_{0};
};

// The counts of a rank since its runtime was created.
template <typename Count>
struct BasicStatistics {
#define RONDA_STATISTICS_FIELD(name) Count name{};
  RONDA_STATISTICS_TABLE(RONDA_STATISTICS_FIELD)
#undef RONDA_STATISTICS_FIELD
};
using Statistics = BasicStatistics<uint64_t>;

// A rank's counters while the job runs. The thread that drives the progress engine changes the counters. Only the
// counter of steps is changed by the threads that submit tensors.
using Counters = BasicStatistics<Counter>;

inline Statistics Read(const Counters& counters) {
#define RONDA_STATISTICS_READ(name) counters.name,
  return {RONDA_STATISTICS_TABLE(RONDA_STATISTICS_READ)};
#undef RONDA_STATISTICS_READ
}

}  // namespace ronda

#endif  // RONDA_RUNTIME_MONITOR_STATISTICS_H_
