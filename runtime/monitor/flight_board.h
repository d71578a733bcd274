#ifndef RONDA_RUNTIME_MONITOR_FLIGHT_BOARD_H_
#define RONDA_RUNTIME_MONITOR_FLIGHT_BOARD_H_

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "runtime/base/types.h"
#include "runtime/monitor/flight_recorder.h"

namespace ronda {

// The flight recorders of all ranks of a job, as this rank can read them. Each rank writes to its own; what ranks on
// other hosts do is entered here as far as it is heard of.
//
// Thread-safe. Keeps their memory.
class FlightBoard {
 public:
  // Recorders in this process' memory, for ranks that share it.
  explicit FlightBoard(int size) {
    const std::shared_ptr<FlightRecorder[]> recorders(new FlightRecorder[static_cast<size_t>(size)]());
    for (size_t i = 0; i < static_cast<size_t>(size); ++i) recorders_.push_back(&recorders[i]);
    memory_ = recorders;
  }

  // Recorders, by rank, that lie in `memory`.
  FlightBoard(std::vector<FlightRecorder*> recorders, std::shared_ptr<const void> memory)
      : recorders_(std::move(recorders)), memory_(std::move(memory)) {}

  int size() const { return static_cast<int>(recorders_.size()); }
  FlightRecorder& Of(RankId rank) const { return *recorders_[static_cast<size_t>(rank)]; }

 private:
  std::vector<FlightRecorder*> recorders_;
  std::shared_ptr<const void> memory_;
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_MONITOR_FLIGHT_BOARD_H_
