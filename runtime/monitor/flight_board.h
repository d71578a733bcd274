#ifndef RONDA_RUNTIME_MONITOR_FLIGHT_BOARD_H_
#define RONDA_RUNTIME_MONITOR_FLIGHT_BOARD_H_

#include <cstddef>
#include <memory>
#include <utility>

#include "absl/types/span.h"
#include "runtime/base/types.h"
#include "runtime/monitor/flight_recorder.h"

namespace ronda {

// The flight recorders of all ranks of a job that this rank can read; each rank writes to its own only.
//
// Thread-safe. Keeps their memory.
class FlightBoard {
 public:
  // Recorders in this process' memory, for ranks that share it.
  explicit FlightBoard(int size) {
    const std::shared_ptr<FlightRecorder[]> recorders(new FlightRecorder[static_cast<size_t>(size)]());
    recorders_ = absl::MakeSpan(recorders.get(), static_cast<size_t>(size));
    memory_ = recorders;
  }

  // Recorders that lie in `memory`.
  FlightBoard(absl::Span<FlightRecorder> recorders, std::shared_ptr<const void> memory)
      : recorders_(recorders), memory_(std::move(memory)) {}

  int size() const { return static_cast<int>(recorders_.size()); }
  FlightRecorder& Of(RankId rank) const { return recorders_[static_cast<size_t>(rank)]; }

 private:
  absl::Span<FlightRecorder> recorders_;
  std::shared_ptr<const void> memory_;
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_MONITOR_FLIGHT_BOARD_H_
