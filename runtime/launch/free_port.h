#ifndef RONDA_RUNTIME_LAUNCH_FREE_PORT_H_
#define RONDA_RUNTIME_LAUNCH_FREE_PORT_H_

namespace ronda {

// A port of this host that nobody listens on now; 0 if the system has none. Rank 0 will, a moment later.
int FindFreePort();

}  // namespace ronda

#endif  // RONDA_RUNTIME_LAUNCH_FREE_PORT_H_
