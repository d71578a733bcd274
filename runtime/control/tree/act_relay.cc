#include "runtime/control/tree/act_relay.h"

#include <utility>

namespace ronda {

void ActRelay::TakeFromBelow(const std::vector<Act>& acts, FlightTime now) {
  if (options_.rank == kCoordinatorRank) return TakeFromAbove(acts, now);
  // It comes back from rank 0, and is noted then.
  for (const Act& act : acts) up_.push_back({.act = act, .at = now});
}

void ActRelay::TakeFromAbove(const std::vector<Act>& acts, FlightTime now) {
  for (const Act& act : acts) {
    Note(act, now);
    down_.push_back({.act = act, .at = now});
  }
}

void ActRelay::Note(const Act& act, FlightTime now) {
  // Ranks of this host write to recorders that all of them can read.
  const bool is_remote = options_.peers[act.rank].host != options_.peers[options_.rank].host;
  if (options_.flights == nullptr || !is_remote) return;
  options_.flights->Of(act.rank).Record(act.kind, act.op, act.name, act.bytes, now - act.age);
}

void ActRelay::LookAtOwn(FlightTime now) {
  if (options_.flights == nullptr) return;
  const std::optional<FlightEvent> last = options_.flights->Of(options_.rank).Last();
  if (!last.has_value() || last_told_ == last->time || now - last->time < options_.standstill) return;
  last_told_ = last->time;
  const Act act = {.rank = options_.rank,
                   .kind = last->kind,
                   .op = last->op,
                   .name = last->name,
                   .bytes = last->bytes,
                   .age = now - last->time};
  (options_.rank == kCoordinatorRank ? down_ : up_).push_back({.act = act, .at = now});
}

std::vector<Act> ActRelay::TakeAged(std::vector<Timed>& acts, FlightTime now) {
  std::vector<Act> aged;
  for (Timed& timed : std::exchange(acts, {})) {
    timed.act.age += now - timed.at;
    aged.push_back(std::move(timed.act));
  }
  return aged;
}

ActRelay::News ActRelay::Take(FlightTime now) {
  LookAtOwn(now);
  return {.up = TakeAged(up_, now), .down = TakeAged(down_, now)};
}

}  // namespace ronda
