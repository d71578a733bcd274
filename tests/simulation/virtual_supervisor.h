// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_TESTS_SIMULATION_VIRTUAL_SUPERVISOR_H_
#define RONDA_TESTS_SIMULATION_VIRTUAL_SUPERVISOR_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "programs/rondarun/output/output_sinks.h"
#include "programs/rondarun/supervise/job_part.h"
#include "programs/rondarun/supervise/members.h"
#include "programs/rondarun/supervise/poll_set.h"
#include "programs/rondarun/supervise/shutdown_schedule.h"

namespace ronda::simulation {

// The supervisor in a simulated launcher or agent. It runs the members of an elastic job as the production class
// Supervisor does. A simulation cannot use Supervisor itself, which uses a guard process, a terminal and real signals.
//
// Only the process that created a VirtualSupervisor may use it.
class VirtualSupervisor final : private JobListener {
 public:
  // `report` and `output` must outlive this object. Each round sends the messages in `output`, if it is not nullptr.
  VirtualSupervisor(JobListener* report, OutputQueue* output) : report_(*report), output_(output) {}

  // Like Supervisor::MakeMembers.
  using MakeMembers = std::function<std::unique_ptr<SupervisedMembers>(MemberSupervision supervision)>;
  void MakeElastic(const MakeMembers& make_members);
  void Watch(int fd, std::function<void()> on_ready);
  void StopWatching() { watched_.reset(); }
  void SignalParts(int signo);

  // Runs until all members have ended. Calls `on_round` in each round.
  void Run(const std::function<void()>& on_round);

 private:
  void OnRankStart(RankId rank, pid_t pid, const std::string& host) override;
  void OnOutput(RankId rank, Stream stream, absl::string_view bytes) override;
  void OnOutputEnd(RankId rank, Stream stream) override;
  void OnRankEnd(RankEnd end) override;
  void OnHelperLine(absl::string_view helper, absl::string_view line) override;
  void OnJobFailure(absl::string_view what, int exit_code) override;
  size_t Pending(Stream stream) const override { return report_.Pending(stream); }
  void Say(absl::string_view text) override { report_.Say(text); }
  void Explain(absl::string_view text) override { report_.Explain(text); }

  absl::Status StartMember(std::unique_ptr<JobPart> part);
  void End(int exit_code, const std::string& why);
  void Step();
  void AddPart(JobPart* part, PollSet* poll);
  void WriteQueues();
  bool IsRunning() const;

  struct Watched {
    int fd;
    std::function<void()> on_ready;
  };

  JobListener& report_;
  OutputQueue* const output_;
  std::unique_ptr<SupervisedMembers> members_;
  std::vector<std::unique_ptr<JobPart>> parts_;
  std::optional<Watched> watched_;
  ShutdownSchedule schedule_{ShutdownSchedule::Options()};
};

}  // namespace ronda::simulation

#endif  // RONDA_TESTS_SIMULATION_VIRTUAL_SUPERVISOR_H_
