// SPDX-License-Identifier: Apache-2.0

#include "programs/rondarun/elastic/host_discovery.h"

#include <csignal>
#include <cstddef>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "programs/options/hosts.h"
#include "programs/options/shell_words.h"
#include "programs/rondarun/supervise/child_process.h"
#include "programs/rondarun/supervise/verdict.h"

namespace ronda {
namespace {

// The maximum output of the program, far more than any list of hosts needs.
constexpr size_t kMaxOutput = size_t{4} << 20;

// A run of the user's program.
class DiscoveryPart final : public JobPart {
 public:
  using Done = std::function<void(absl::StatusOr<std::string> output)>;

  DiscoveryPart(ChildProcess::Options options, Done done) : JobPart(std::move(options)), done_(std::move(done)) {}

  bool carries_job() const override { return false; }
  std::vector<RankId> RunningRanks() const override { return {}; }
  std::vector<AwaitedRank> AwaitedRanks() const override { return {}; }

 private:
  void OnStart() override {}
  void OnBytes(Stream stream, absl::string_view bytes) override {
    if (stream == Stream::kStderr) {
      errors_.Feed(bytes, [this](absl::string_view line) { last_error_ = std::string(line); });
    } else if (output_.size() < kMaxOutput) {
      output_.append(bytes.data(), bytes.size());
    }
  }
  void OnBytesEnd(Stream stream) override {
    if (stream == Stream::kStderr) errors_.Finish([this](absl::string_view line) { last_error_ = std::string(line); });
  }
  void OnEnd(const ChildProcess::End& end) override {
    const RankEnd own = {.exit_code = end.exit_code, .signal = end.signal};
    if (!own.failed() && output_.size() < kMaxOutput) return done_(std::move(output_));
    std::string what = own.failed() ? DescribeEnd(own) : "prints without end";
    if (!last_error_.empty()) absl::StrAppend(&what, " (", last_error_, ")");
    done_(absl::UnavailableError(what));
  }
  // Forwards only SIGKILL to the user's program. All other signals from the user are for the ranks.
  void Pass(int signo) override {
    if (signo == SIGKILL) process().SignalGroup(signo);
  }

  const Done done_;
  LineSplitter errors_;
  std::string output_;
  std::string last_error_;  // on stderr
};

}  // namespace

HostDiscovery::HostDiscovery(Options options, const MemberSupervision& supervision, OnHosts on_hosts)
    : options_(std::move(options)), supervision_(supervision), on_hosts_(std::move(on_hosts)) {}

void HostDiscovery::OnTime() {
  const absl::Time now = supervision_.clock->Now();
  if (now < deadline_) return;
  deadline_ = now + options_.timeout;
  if (part_ != nullptr) {
    is_killed_ = true;
    part_->Signal(SIGKILL);
    return;
  }
  auto part = std::make_unique<DiscoveryPart>(
      ChildProcess::Options{.command = options_.command, .environment = options_.environment},
      [this](absl::StatusOr<std::string> output) { OnEnd(std::move(output)); });
  JobPart* const started = part.get();
  const absl::Status status = supervision_.start(std::move(part));
  if (!status.ok()) return OnEnd(status);
  part_ = started;
}

void HostDiscovery::OnEnd(absl::StatusOr<std::string> output) {
  part_ = nullptr;
  deadline_ = supervision_.clock->Now() + options_.period;
  const bool is_killed = std::exchange(is_killed_, false);
  if (!output.ok() && is_killed) {
    return Say(
        absl::StrCat("rondarun ended it, because it ran for more than ", absl::FormatDuration(options_.timeout)));
  }
  if (!output.ok()) return Say(output.status().message());
  const auto listed = ParseDiscoveredHosts(*output, options_.slots_per_host);
  if (!listed.ok()) return Say(listed.status().message());
  said_.clear();
  if (*output == hosts_) return;
  hosts_ = *std::move(output);
  std::vector<JobMembership::Host> hosts;
  for (const HostSlots& host : *listed) hosts.push_back({.name = host.host, .slots = host.slots});
  on_hosts_(hosts);
}

// Prints a problem for the user, but not twice in a row.
void HostDiscovery::Say(absl::string_view problem) {
  if (problem == said_) return;
  said_ = std::string(problem);
  supervision_.listener->Say(absl::StrCat("--host-discovery-script ", ShellQuote(options_.command), ": ", problem,
                                          "; the hosts stay as they are"));
}

}  // namespace ronda
