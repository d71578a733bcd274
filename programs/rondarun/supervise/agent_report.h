// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_PROGRAMS_RONDARUN_SUPERVISE_AGENT_REPORT_H_
#define RONDA_PROGRAMS_RONDARUN_SUPERVISE_AGENT_REPORT_H_

#include <sys/types.h>

#include <cstddef>
#include <functional>
#include <string>
#include <utility>

#include "absl/strings/string_view.h"
#include "programs/rondarun/output/output_sinks.h"
#include "programs/rondarun/supervise/agent.h"
#include "programs/rondarun/supervise/job_part.h"
#include "programs/rondarun/supervise/verdict.h"
#include "runtime/base/types.h"

namespace ronda {

// An agent's reports to its launcher about the ranks on its host.
//
// Thread-compatible. The queue must outlive this object.
class AgentReport final : public JobListener {
 public:
  explicit AgentReport(OutputQueue* queue) : queue_(queue) {}

  // Sends the agent's first message. `address` is where other hosts can reach this host; it is empty if this host has
  // no address.
  struct FreePorts {
    int free = 0;
    int store = 0;
  };
  void SayHello(const std::string& address, const FreePorts& ports);
  void Send(const AgentMessage& message) { queue_->Append(Encode(message)); }

  // From now on, calls `call` before reporting the end of a rank.
  void BeforeEnds(std::function<void(RankId rank)> call) { before_ends_ = std::move(call); }

  void OnRankStart(RankId rank, pid_t pid, const std::string& host) override;
  void OnOutput(RankId rank, Stream stream, absl::string_view bytes) override;
  void OnOutputEnd(RankId rank, Stream stream) override;
  void OnRankEnd(RankEnd end) override;
  void OnHelperLine(absl::string_view helper, absl::string_view line) override;
  void OnJobFailure(absl::string_view what, int exit_code) override;
  size_t Pending(Stream) const override { return queue_->pending().size(); }
  void Say(absl::string_view text) override;
  void Explain(absl::string_view) override {}

 private:
  OutputQueue* const queue_;
  std::function<void(RankId rank)> before_ends_;
};

}  // namespace ronda

#endif  // RONDA_PROGRAMS_RONDARUN_SUPERVISE_AGENT_REPORT_H_
