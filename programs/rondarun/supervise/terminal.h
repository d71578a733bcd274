// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_PROGRAMS_RONDARUN_SUPERVISE_TERMINAL_H_
#define RONDA_PROGRAMS_RONDARUN_SUPERVISE_TERMINAL_H_

#include <sys/types.h>

namespace ronda {

// The terminal that is this process' standard input, if it belongs to the process' session. Only one process group at a
// time may read from a terminal. The signals of the terminal's keys also go to this group. The shell gives the terminal
// to this process' group, and this process may lend it to a child's group. If a child reads the terminal although the
// terminal is not lent to the child's group, the child is stopped (SIGTTIN).
//
// Thread-compatible. The process must be single-threaded.
class Terminal {
 public:
  // Returns whether the terminal belongs to this process' group, or to the group to which this process has lent it.
  bool IsOurs() const;

  // REQUIRES: IsOurs().
  void LendTo(pid_t group);
  // Does nothing if the terminal is not lent, or no longer belongs to this job.
  void Reclaim();

  // Returns the group to which the terminal is lent; 0: none.
  pid_t borrower() const { return borrower_; }

 private:
  pid_t borrower_ = 0;
};

// Returns the signal that has stopped the child since the last call, or 0 if no signal has stopped it.
int StopSignalOf(pid_t child);

// Stops the processes of this process' group by `signo`, although this process blocks the signal. `signo` is SIGTSTP,
// which the terminal's stop key sends, or SIGTTIN, which a read in the background causes. Returns when the processes go
// on. If no shell could let the processes continue, returns at once.
void StopOwnGroup(int signo);

}  // namespace ronda

#endif  // RONDA_PROGRAMS_RONDARUN_SUPERVISE_TERMINAL_H_
