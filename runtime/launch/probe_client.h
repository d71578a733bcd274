#ifndef RONDA_RUNTIME_LAUNCH_PROBE_CLIENT_H_
#define RONDA_RUNTIME_LAUNCH_PROBE_CLIENT_H_

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "runtime/base/unique_fd.h"

namespace ronda {

// A probe (host_probe.h) that runs as a child process, here or behind ssh, and the conversation with it.
//
// Thread-compatible. The destructor ends the child.
class ProbeClient {
 public:
  // `command` is looked up in PATH unless it contains a slash.
  // Errors: NOT_FOUND if there is no such command; the system's.
  static absl::StatusOr<std::unique_ptr<ProbeClient>> Start(const std::vector<std::string>& command);

  ~ProbeClient();
  ProbeClient(const ProbeClient&) = delete;
  ProbeClient& operator=(const ProbeClient&) = delete;

  // Asks a question. That the probe is gone shows when its answer is read.
  void Ask(absl::string_view question);

  // The next line that the probe prints, without newline.
  // Errors: UNAVAILABLE with the last line that it has printed to standard error, if it has ended; DEADLINE_EXCEEDED.
  absl::StatusOr<std::string> ReadLine(absl::Time deadline);

 private:
  ProbeClient(pid_t pid, UniqueFd conversation, UniqueFd errors);

  // Why it has ended.
  absl::Status Ended();

  const pid_t pid_;
  UniqueFd conversation_;  // a socket: its input and output
  UniqueFd errors_;        // what it prints to standard error
  std::string unread_;
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_LAUNCH_PROBE_CLIENT_H_
