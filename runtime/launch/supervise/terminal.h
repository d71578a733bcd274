#ifndef RONDA_RUNTIME_LAUNCH_SUPERVISE_TERMINAL_H_
#define RONDA_RUNTIME_LAUNCH_SUPERVISE_TERMINAL_H_

#include <sys/types.h>

namespace ronda {

// The terminal that is this process' standard input, if it is one that the process' session has. One process group at a
// time may read it and gets the signals of its keys: the shell gives it to that of this process, which may lend it to
// the group of a child. A child that reads it without being lent it is stopped (SIGTTIN).
//
// Thread-compatible; for single-threaded processes.
class Terminal {
 public:
  // Whether this process' group has the terminal, or the group to which it is lent.
  bool IsOurs() const;

  // REQUIRES: IsOurs().
  void LendTo(pid_t group);
  // Does nothing if it is not lent, or ours no more.
  void TakeBack();

  // The group to which it is lent; 0: it is not.
  pid_t borrower() const { return borrower_; }

 private:
  pid_t borrower_ = 0;
};

// The signal that has stopped a child since the last question; 0: it is not stopped.
int StopSignalOf(pid_t child);

// Stops the processes of this process' group, as the terminal's key does (SIGTSTP) or a read in the background
// (SIGTTIN), although this process blocks the signal. Returns when they go on; at once, if there is no shell to let
// them go on.
void StopOwnGroup(int signo);

}  // namespace ronda

#endif  // RONDA_RUNTIME_LAUNCH_SUPERVISE_TERMINAL_H_
