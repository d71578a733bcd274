#ifndef RONDA_RUNTIME_CONTROL_TREE_ACT_RELAY_H_
#define RONDA_RUNTIME_CONTROL_TREE_ACT_RELAY_H_

#include <memory>
#include <optional>
#include <vector>

#include "absl/time/time.h"
#include "runtime/base/peer.h"
#include "runtime/control/tree/control_frame.h"
#include "runtime/monitor/flight_recorder.h"

namespace ronda {

// Spreads what ranks did last, so that a report of a late rank can say it on any host: up the tree to rank 0, and down
// again to everybody. Only an act that nothing has followed for a while travels, and only once: ranks that work cause
// no traffic, and idle ones neither.
//
// Ages travel, because hosts' clocks differ. Thread-compatible.
class ActRelay {
 public:
  struct Options {
    RankId rank = 0;
    std::vector<Peer> peers;               // by rank
    absl::Duration standstill;             // after which an act is worth telling
    std::shared_ptr<FlightBoard> flights;  // nullptr: there is nothing to tell, nor anywhere to note it
  };

  explicit ActRelay(Options options) : options_(std::move(options)) {}

  // Acts that have come from a child, and from the parent.
  void TakeFromBelow(const std::vector<Act>& acts, FlightTime now);
  void TakeFromAbove(const std::vector<Act>& acts, FlightTime now);

  // What there is to tell since the last time: to the parent; and to the children, all of them the same.
  struct News {
    std::vector<Act> up;
    std::vector<Act> down;
  };
  News Take(FlightTime now);

 private:
  struct Timed {
    Act act;  // its age counts from `at`
    FlightTime at;
  };

  static std::vector<Act> TakeAged(std::vector<Timed>& acts, FlightTime now);
  void LookAtOwn(FlightTime now);
  void Note(const Act& act, FlightTime now);

  const Options options_;
  std::optional<FlightTime> last_told_;  // when this rank's act happened that was told last
  std::vector<Timed> up_;
  std::vector<Timed> down_;
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_CONTROL_TREE_ACT_RELAY_H_
