// SPDX-License-Identifier: Apache-2.0

#include "programs/rondarun/supervise/terminal.h"

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

namespace ronda {
namespace {

// Gives the terminal to `group`. If this process's own group did not have the terminal, SIGTTOU would stop this
// process, so the signal is blocked meanwhile.
void GiveTo(pid_t group) {
  sigset_t stop, before;
  sigemptyset(&stop);
  sigaddset(&stop, SIGTTOU);
  sigprocmask(SIG_BLOCK, &stop, &before);
  // If the terminal is gone, there is nothing to do.
  [[maybe_unused]] const int given = tcsetpgrp(STDIN_FILENO, group);
  sigprocmask(SIG_SETMASK, &before, nullptr);
}

}  // namespace

bool Terminal::IsOurs() const {
  const pid_t group = tcgetpgrp(STDIN_FILENO);
  return group > 0 && (group == getpgrp() || group == borrower_);
}

void Terminal::LendTo(pid_t group) {
  borrower_ = group;
  GiveTo(group);
}

void Terminal::Reclaim() {
  const bool is_lent = borrower_ != 0 && tcgetpgrp(STDIN_FILENO) == borrower_;
  borrower_ = 0;
  if (is_lent) GiveTo(getpgrp());
}

int StopSignalOf(pid_t child) {
  siginfo_t info = {};
  const int found = waitid(P_PID, static_cast<id_t>(child), &info, WSTOPPED | WNOHANG);
  return found == 0 && info.si_pid != 0 ? info.si_status : 0;
}

void StopOwnGroup(int signo) {
  kill(0, signo);
  sigset_t stop, before;
  sigemptyset(&stop);
  sigaddset(&stop, signo);
  sigprocmask(SIG_UNBLOCK, &stop, &before);  // here it stops
  sigprocmask(SIG_SETMASK, &before, nullptr);
}

}  // namespace ronda
