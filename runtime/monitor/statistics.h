// The numbers that a rank counts about its own work.
#ifndef RONDA_RUNTIME_MONITOR_STATISTICS_H_
#define RONDA_RUNTIME_MONITOR_STATISTICS_H_

#include <atomic>
#include <cstdint>

namespace ronda {

// One row a number, in the order of ronda_statistics (client/ronda.h), to whose end the C ABI appends. All else is
// derived from the rows: the counters, a copy of them for readers, and the C ABI's struct.
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
//   steps               a step ends when a tensor that it has comes again
//   tensors             carried out with this rank's part in them
//   payload_bytes       of these tensors, in their own dtype
//   wire_bytes          of the same, in the format in which they travel
//   bucket_nanoseconds  in buckets: from the time at which this rank was ready for a bucket, and done with the one
//                       before, to the bucket's end. Waits for other ranks and transfers
//   tensors_in_flight   submitted and not carried out; the only one that also falls
//   exposed_nanoseconds in which a thread of the program, or several, waited for a tensor. In a rank's words these are
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

// A number to which one thread at a time adds, and which any thread reads.
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

// The same while it is counted: by the thread that drives the progress engine; steps by the threads that submit.
using Counters = BasicStatistics<Counter>;

inline Statistics Read(const Counters& counters) {
#define RONDA_STATISTICS_READ(name) counters.name,
  return {RONDA_STATISTICS_TABLE(RONDA_STATISTICS_READ)};
#undef RONDA_STATISTICS_READ
}

}  // namespace ronda

#endif  // RONDA_RUNTIME_MONITOR_STATISTICS_H_
