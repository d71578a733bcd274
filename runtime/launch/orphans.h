// Processes whose parent has died, and that are ours to end.
#ifndef RONDA_RUNTIME_LAUNCH_ORPHANS_H_
#define RONDA_RUNTIME_LAUNCH_ORPHANS_H_

#include <sys/types.h>

#include <vector>

namespace ronda {

// From now on, processes below this one become its children when their parent dies, instead of escaping: those that a
// helper leaves behind when it has to be killed.
void AdoptOrphans();

// Kills all children of this process, with theirs that they leave behind, but for those in `spared`; returns when they
// are gone. To be called by a single-threaded process.
void KillOrphans(const std::vector<pid_t>& spared);

}  // namespace ronda

#endif  // RONDA_RUNTIME_LAUNCH_ORPHANS_H_
