#ifndef RONDA_RUNTIME_ENGINE_STATISTICS_H_
#define RONDA_RUNTIME_ENGINE_STATISTICS_H_

#include <atomic>
#include <cstdint>

namespace ronda {

// A number that one thread at a time adds to and any thread reads.
class Counter {
 public:
  void Add(uint64_t more = 1) {
    count_.store(count_.load(std::memory_order_relaxed) + more, std::memory_order_relaxed);
  }
  operator uint64_t() const { return count_.load(std::memory_order_relaxed); }  // NOLINT(google-explicit-constructor)

 private:
  std::atomic<uint64_t> count_{0};
};

// What a rank has done since its runtime was created.
template <typename Count>
struct BasicStatistics {
  Count reports_sent{};       // control messages to rank 0
  Count reports_received{};   // on rank 0, its own included
  Count lists_sent{};         // on rank 0: control messages to all ranks
  Count lists_received{};     // from rank 0
  Count buckets_agreed{};     // carried out because a list said so
  Count buckets_scheduled{};  // carried out because the locked schedule says so
  Count schedules_begun{};
  Count schedules_left{};   // of these, by a veto
  Count own_vetoes{};       // of schedules_left, those in which this rank wanted to leave
  Count schedule_rounds{};  // how often a locked schedule was carried out from its beginning to its end
};
using Statistics = BasicStatistics<uint64_t>;

// The same while it is counted, by the thread that has the turn (engine_driver.h).
using Counters = BasicStatistics<Counter>;

inline Statistics Read(const Counters& counters) {
  return {.reports_sent = counters.reports_sent,
          .reports_received = counters.reports_received,
          .lists_sent = counters.lists_sent,
          .lists_received = counters.lists_received,
          .buckets_agreed = counters.buckets_agreed,
          .buckets_scheduled = counters.buckets_scheduled,
          .schedules_begun = counters.schedules_begun,
          .schedules_left = counters.schedules_left,
          .own_vetoes = counters.own_vetoes,
          .schedule_rounds = counters.schedule_rounds};
}

}  // namespace ronda

#endif  // RONDA_RUNTIME_ENGINE_STATISTICS_H_
