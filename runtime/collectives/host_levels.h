#ifndef RONDA_RUNTIME_COLLECTIVES_HOST_LEVELS_H_
#define RONDA_RUNTIME_COLLECTIVES_HOST_LEVELS_H_

#include "runtime/collectives/communicator.h"
#include "runtime/collectives/host_map.h"

namespace ronda {

// The two levels in which the communicator of a job works that spans hosts, for what else works in two levels. They are
// used as that communicator is: by the same thread, and between its calls.
//
// Owns nothing.
struct HostLevels {
  HostMap hosts;
  Communicator* local = nullptr;   // of this host's ranks, numbered by their place in its list
  Communicator* across = nullptr;  // of the ranks with this place on their hosts, numbered by host; nullptr: not every
                                   // host has this place
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_COLLECTIVES_HOST_LEVELS_H_
