// SPDX-License-Identifier: Apache-2.0

#include "programs/rondarun/supervise/poll_set.h"

#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>

#include "absl/status/status.h"
#include "runtime/base/poll.h"
#include "runtime/base/status_macros.h"

namespace ronda {
namespace {

bool IsIgnored(int signo) {
  struct sigaction action = {};
  return sigaction(signo, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

}  // namespace

absl::Status PollSet::Wait(absl::Duration timeout) {
  RONDA_RETURN_IF_ERROR(PollDescriptors(absl::MakeSpan(requests_), timeout).status());
  for (size_t i = 0; i < requests_.size(); ++i) {
    if (requests_[i].revents != 0) actions_[i]();
  }
  return absl::OkStatus();
}

absl::StatusOr<SignalInbox> SignalInbox::Create(const std::vector<int>& signals) {
  SignalInbox inbox;
  // The parent process may have set SIGCHLD to be ignored, in which case the kernel would discard the ranks' exit
  // codes.
  signal(SIGCHLD, SIG_DFL);
  sigset_t awaited;
  sigemptyset(&awaited);
  for (const int signo : signals) {
    if (!IsIgnored(signo)) sigaddset(&awaited, signo);
  }
  inbox.signals_ = awaited;
  sigprocmask(SIG_BLOCK, &awaited, &inbox.original_mask_);

  // Ignore SIGPIPE, so that write() only returns an error when the reader of this process's output is gone.
  struct sigaction ignore = {};
  ignore.sa_handler = SIG_IGN;
  sigaction(SIGPIPE, &ignore, &inbox.original_sigpipe_);

  inbox.fd_.Reset(signalfd(-1, &awaited, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!inbox.fd_.valid()) return absl::ErrnoToStatus(errno, "cannot receive signals (signalfd)");
  return inbox;
}

std::optional<int> SignalInbox::Next() {
  signalfd_siginfo info;
  if (read(fd_.get(), &info, sizeof(info)) != sizeof(info)) return std::nullopt;
  return static_cast<int>(info.ssi_signo);
}

void SignalInbox::RestoreInChild() const {
  sigaction(SIGPIPE, &original_sigpipe_, nullptr);
  sigprocmask(SIG_SETMASK, &original_mask_, nullptr);
}

}  // namespace ronda
