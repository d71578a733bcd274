// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_PROGRAMS_RONDARUN_PREFLIGHT_PREFLIGHT_H_
#define RONDA_PROGRAMS_RONDARUN_PREFLIGHT_PREFLIGHT_H_

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "programs/options/launch_options.h"
#include "programs/rondarun/preflight/preflight_report.h"
#include "runtime/base/unique_fd.h"

namespace ronda {

// A child process that is a probe (host_probe.h), either on this host or behind ssh, and the connection to its input
// and output.
//
// Thread-compatible. The destructor ends the child.
class ProbeClient {
 public:
  // `command` is looked up in PATH unless it contains a slash. Errors: NOT_FOUND if there is no such command; those of
  // the operating system.
  static absl::StatusOr<std::unique_ptr<ProbeClient>> Start(const std::vector<std::string>& command);

  ~ProbeClient();
  ProbeClient(const ProbeClient&) = delete;
  ProbeClient& operator=(const ProbeClient&) = delete;

  // Sends a question to the probe. If the probe has ended, reports no error; ReadLine will report the end.
  void Ask(absl::string_view question);

  // Returns the next line that the probe prints, without its newline. Errors: UNAVAILABLE if the probe has ended, with
  // the last line that it printed to stderr; DEADLINE_EXCEEDED.
  absl::StatusOr<std::string> ReadLine(absl::Time deadline);

 private:
  ProbeClient(pid_t pid, UniqueFd conversation, UniqueFd errors);

  // Returns the error for a probe that has ended.
  absl::Status Ended();

  const pid_t pid_;
  UniqueFd conversation_;  // a socket: the probe's input and output
  UniqueFd errors_;        // its standard error
  std::string unread_;
};

// Implements rondarun --check. Starts `program` as a probe on all hosts of `options` at the same time. `program` is the
// path of rondarun, which must be the same on all hosts. Then lets the hosts try to reach each other, and writes the
// report. A host whose name is in `own` is this host. All other hosts are reached over ssh, or through the user's own
// remote shell.
PreflightReport CheckHosts(const LaunchOptions& options, const std::string& program,
                           const std::vector<std::string>& own);

// Checks the hosts, and prints the report. Returns the exit code, which is 1 if a problem prevents a job.
int RunPreflight(const LaunchOptions& options);

}  // namespace ronda

#endif  // RONDA_PROGRAMS_RONDARUN_PREFLIGHT_PREFLIGHT_H_
