// SPDX-License-Identifier: Apache-2.0

// The statistics that a rank keeps about its own work.
#ifndef RONDA_RUNTIME_MONITOR_STATISTICS_H_
#define RONDA_RUNTIME_MONITOR_STATISTICS_H_

#include <atomic>
#include <cstdint>

namespace ronda {

// One row per statistic, in the order of ronda_statistics (client/ronda.h), to which the C ABI only appends. The
// counters, the copy for readers, and the C ABI's struct are all generated from these rows.
//
//   reports_sent        control messages from this rank to rank 0
//   reports_received    on rank 0: reports of all ranks, including its own
//   lists_sent          on rank 0: control messages to all ranks
//   lists_received      control messages from rank 0
//   buckets_agreed      buckets completed from a response list
//   buckets_scheduled   buckets completed from the locked schedule
//   schedules_begun     locked schedules
//   schedules_left      of these, those that a veto unlocked
//   own_vetoes          of schedules_left, those that this rank vetoed
//   schedule_rounds     complete runs through a locked schedule
//   steps               a step ends when a tensor that it already has is submitted again
//   tensors             completed, with this rank taking part
//   payload_bytes       of these tensors, in their own dtype
//   wire_bytes          of these tensors, in the format in which they travel
//   bucket_nanoseconds  in buckets: from when this rank was ready for the bucket and done with the previous one, to the
//                       bucket's end. Includes transfers and waits for other ranks
//   tensors_in_flight   submitted and not completed yet; the only number that also decreases
//   exposed_nanoseconds while at least one thread of the program waited for a tensor. In RankWords, these are
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

// A number that any thread may read, but only one thread at a time changes.
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

// A rank's counts since its runtime was created.
template <typename Count>
struct BasicStatistics {
#define RONDA_STATISTICS_FIELD(name) Count name{};
  RONDA_STATISTICS_TABLE(RONDA_STATISTICS_FIELD)
#undef RONDA_STATISTICS_FIELD
};
using Statistics = BasicStatistics<uint64_t>;

// A rank's live counters. The progress thread changes them, except for the steps, which the submitting threads count.
using Counters = BasicStatistics<Counter>;

inline Statistics Read(const Counters& counters) {
#define RONDA_STATISTICS_READ(name) counters.name,
  return {RONDA_STATISTICS_TABLE(RONDA_STATISTICS_READ)};
#undef RONDA_STATISTICS_READ
}

}  // namespace ronda

#endif  // RONDA_RUNTIME_MONITOR_STATISTICS_H_
