// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_PROGRAMS_RONDARUN_SUPERVISE_TERMINAL_H_
#define RONDA_PROGRAMS_RONDARUN_SUPERVISE_TERMINAL_H_

#include <sys/types.h>

namespace ronda {

// The terminal that is this process's standard input, if it is the controlling terminal of the session. Only one
// process group at a time may read from a terminal, and the signals of the terminal's keys go to this group too. The
// shell gives the terminal to this process's group. This process may lend it to a child's group. A child that reads the
// terminal without having borrowed it is stopped (SIGTTIN).
//
// Thread-compatible. The process must be single-threaded.
class Terminal {
 public:
  // Returns whether the terminal belongs to this process's group, or to the group that has borrowed it.
  bool IsOurs() const;

  // REQUIRES: IsOurs().
  void LendTo(pid_t group);
  // Does nothing if the terminal has not been lent, or no longer belongs to this job.
  void Reclaim();

  // Returns the group that has borrowed the terminal, or 0 if there is none.
  pid_t borrower() const { return borrower_; }

 private:
  pid_t borrower_ = 0;
};

// Returns the signal that has stopped the child since the last call, or 0 if it has not been stopped.
int StopSignalOf(pid_t child);

// Stops this process's group with `signo`, although this process blocks that signal. `signo` is SIGTSTP, which the
// terminal's stop key sends, or SIGTTIN, which reading in the background causes. Returns when the processes continue,
// or at once if no shell could let them continue.
void StopOwnGroup(int signo);

}  // namespace ronda

#endif  // RONDA_PROGRAMS_RONDARUN_SUPERVISE_TERMINAL_H_
