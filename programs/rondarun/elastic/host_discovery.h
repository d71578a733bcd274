// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_PROGRAMS_RONDARUN_ELASTIC_HOST_DISCOVERY_H_
#define RONDA_PROGRAMS_RONDARUN_ELASTIC_HOST_DISCOVERY_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "programs/rondarun/membership/membership.h"
#include "programs/rondarun/supervise/job_part.h"
#include "programs/rondarun/supervise/members.h"

namespace ronda {

// Runs a user's program repeatedly to obtain the list of hosts for an elastic job. The program prints a line "HOST" or
// "HOST:SLOTS" per host. While it fails or lists no host, the hosts stay as they are, and HostDiscovery tells the user
// why.
//
// Thread-compatible; owned by an ElasticJob.
class HostDiscovery {
 public:
  struct Options {
    std::vector<std::string> command;            // the program and its arguments
    std::vector<std::string> environment;        // of the program, "NAME=value"
    int slots_per_host = 0;                      // for hosts listed without slots; 0: each host must have some
    absl::Duration period = absl::Seconds(1);    // from the end of a run to the next one
    absl::Duration timeout = absl::Seconds(60);  // of a run, which is killed then
  };

  // Called when the list has changed.
  using OnHosts = std::function<void(const std::vector<JobMembership::Host>& hosts)>;
  HostDiscovery(Options options, const MemberSupervision& supervision, OnHosts on_hosts);

  // Starts the user's program if a run is due, or kills a run that takes too long. Must be called at `deadline`, and
  // may also be called earlier.
  void OnTime();
  absl::Time deadline() const { return deadline_; }

 private:
  void OnEnd(absl::StatusOr<std::string> output);
  void Say(absl::string_view problem);

  const Options options_;
  const MemberSupervision supervision_;
  const OnHosts on_hosts_;
  JobPart* part_ = nullptr;                     // not owned; nullptr: it does not run now
  bool is_killed_ = false;                      // this run
  absl::Time deadline_ = absl::InfinitePast();  // of the next run, or of this one
  std::string said_;                            // the last problem that the user has seen
  std::string hosts_;                           // the last list
};

}  // namespace ronda

#endif  // RONDA_PROGRAMS_RONDARUN_ELASTIC_HOST_DISCOVERY_H_
