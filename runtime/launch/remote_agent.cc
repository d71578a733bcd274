#include "runtime/launch/job_runner.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <map>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/clock.h"
#include "runtime/base/environment.h"
#include "runtime/base/status_macros.h"
#include "runtime/base/types.h"
#include "runtime/base/version.h"
#include "runtime/launch/options/launch_options.h"
#include "runtime/launch/options/local_host.h"
#include "runtime/launch/output/output_sinks.h"
#include "runtime/launch/plan/launch_plan.h"
#include "runtime/launch/supervise/agent.h"
#include "runtime/launch/supervise/job_part.h"
#include "runtime/launch/supervise/poll_set.h"
#include "runtime/launch/supervise/supervisor.h"
#include "runtime/net/endpoint.h"

namespace ronda {
namespace {

using Kind = AgentMessage::Kind;

// Reports to the launcher how the ranks fare.
class AgentReport final : public JobListener {
 public:
  explicit AgentReport(OutputQueue* queue) : queue_(queue) {}

  void Send(const AgentMessage& message) { queue_->Append(Encode(message)); }

  void OnRankStart(RankId rank, pid_t pid, const std::string&) override {
    Send({.kind = Kind::kRankStart, .numbers = {rank, pid}, .texts = {}});
  }
  void OnOutput(RankId rank, Stream stream, absl::string_view bytes) override {
    Send({.kind = Kind::kOutput, .numbers = {rank, static_cast<int>(stream)}, .texts = {std::string(bytes)}});
  }
  void OnOutputEnd(RankId rank, Stream stream) override {
    Send({.kind = Kind::kOutputEnd, .numbers = {rank, static_cast<int>(stream)}, .texts = {}});
  }
  void OnRankEnd(RankEnd end) override {
    const int told = end.cause == RankEnd::Cause::kLauncher ? 1 : 0;
    Send({.kind = Kind::kRankEnd, .numbers = {end.rank, end.pid, end.exit_code, end.signal, told}, .texts = {}});
  }
  void OnHelperLine(absl::string_view helper, absl::string_view line) override {
    Say(absl::StrCat(helper, ": ", line));
  }
  void OnJobFailure(absl::string_view what, int exit_code) override {
    Send({.kind = Kind::kFailure, .numbers = {exit_code}, .texts = {std::string(what)}});
  }
  size_t Pending(Stream) const override { return queue_->pending().size(); }
  void Say(absl::string_view text) override {
    Send({.kind = Kind::kText, .numbers = {}, .texts = {std::string(text)}});
  }
  void Explain(absl::string_view) override {}

 private:
  OutputQueue* const queue_;
};

// The ranks that the launcher wants to have started.
struct Order {
  std::string directory;
  std::string host;
  LaunchOptions::Binding binding = LaunchOptions::Binding::kNone;
  std::vector<std::string> variables;
  std::vector<std::string> command;
  std::map<RankId, std::vector<std::string>> ranks;  // with the variables of each
  enum class State { kIncomplete, kComplete } state = State::kIncomplete;
  std::vector<int> signals;  // that came with it
};

void Take(AgentMessage message, Order* order) {
  switch (message.kind) {
    case Kind::kJob:
      order->directory = message.text(0);
      order->host = message.text(1);
      order->binding = static_cast<LaunchOptions::Binding>(message.number(0));
      return;
    case Kind::kVariables:
      order->variables = std::move(message.texts);
      return;
    case Kind::kCommand:
      order->command = std::move(message.texts);
      return;
    case Kind::kRank:
      order->ranks[static_cast<RankId>(message.number(0))] = std::move(message.texts);
      return;
    case Kind::kGo:
      order->state = Order::State::kComplete;
      return;
    case Kind::kSignal:
      order->signals.push_back(static_cast<int>(message.number(0)));
      return;
    default:
      return;
  }
}

class Agent {
 public:
  Agent(StandardOutput* output, SignalInbox signals, rlimit file_limit)
      : output_(output), signals_(std::move(signals)), file_limit_(file_limit), report_(queue()) {}

  // Says hello, waits for the order, and carries it out.
  absl::Status Run(const std::vector<std::string>& network_interfaces);

 private:
  OutputQueue* queue() { return output_->queue(Stream::kStdout); }
  void SayHello(const std::vector<std::string>& network_interfaces);

  // Reads the next messages of the launcher into `order_`. False at the end.
  bool ReadMore();

  void EnterDirectory();
  std::vector<std::string> CommonEnvironment() const;
  absl::StatusOr<std::vector<std::unique_ptr<JobPart>>> MakeParts() const;

  // Something has come from the launcher while the ranks run.
  void Obey(Supervisor* supervisor);

  StandardOutput* const output_;
  SignalInbox signals_;
  const rlimit file_limit_;
  AgentReport report_;
  AgentMessageReader messages_{AgentMessageReader::Stream::kMessages};
  Order order_;
};

void Agent::SayHello(const std::vector<std::string>& network_interfaces) {
  const auto endpoint = ChooseAddress(InterfaceAddresses(), network_interfaces);
  const std::vector<int> ports = FindFreePorts(2);
  queue()->Append(kAgentGreeting);
  report_.Send({.kind = Kind::kHello,
                .numbers = {ports[0], ports[1]},
                .texts = {kVersion, endpoint.ok() ? endpoint->address : std::string()}});
  if (!endpoint.ok() && !network_interfaces.empty()) report_.OnJobFailure(endpoint.status().message(), 1);
}

bool Agent::ReadMore() {
  std::array<char, 65536> buffer;
  const ssize_t count = read(STDIN_FILENO, buffer.data(), buffer.size());
  if (count < 0) return errno == EINTR;
  const absl::string_view bytes(buffer.data(), static_cast<size_t>(count));
  return count > 0 && messages_.Feed(bytes, [this](AgentMessage message) { Take(std::move(message), &order_); }).ok();
}

void Agent::EnterDirectory() {
  if (chdir(order_.directory.c_str()) == 0) return;
  report_.Say(absl::StrCat("there is no directory ", order_.directory, ": the ranks start in the user's own"));
}

std::vector<std::string> Agent::CommonEnvironment() const {
  std::map<std::string, std::string> common;
  for (const std::string& variable : order_.variables) {
    const absl::string_view name = NameOf(variable);
    common[std::string(name)] = variable.substr(std::min(variable.size(), name.size() + 1));
  }
  return InheritedVariables(ProcessVariables(), common);
}

absl::StatusOr<std::vector<std::unique_ptr<JobPart>>> Agent::MakeParts() const {
  HostCores cores;
  if (order_.binding != LaunchOptions::Binding::kNone) {
    RONDA_ASSIGN_OR_RETURN(cores, ThisHostsCores());
  }
  const std::vector<std::string> common = CommonEnvironment();
  const int local_size = static_cast<int>(order_.ranks.size());
  std::vector<std::unique_ptr<JobPart>> parts;
  for (const auto& [rank, variables] : order_.ranks) {
    const int local_rank = static_cast<int>(parts.size());
    ChildProcess::Options options = {.command = order_.command,
                                     .environment = common,
                                     .cpus = CpusOfRank(cores, order_.binding, local_rank, local_size)};
    options.environment.insert(options.environment.end(), variables.begin(), variables.end());
    parts.push_back(std::make_unique<RankPart>(rank, order_.host, std::move(options)));
  }
  return parts;
}

void Agent::Obey(Supervisor* supervisor) {
  const bool more = ReadMore();
  for (const int signo : std::exchange(order_.signals, {})) supervisor->SignalParts(signo);
  if (more) return;
  supervisor->StopWatching();
  supervisor->SignalParts(SIGKILL);
}

absl::Status Agent::Run(const std::vector<std::string>& network_interfaces) {
  RONDA_ASSIGN_OR_RETURN(
      const std::unique_ptr<Supervisor> supervisor,
      Supervisor::Create({.on_failure = Supervisor::OnFailure::kGoOn, .file_limit = file_limit_},
                         {.report = &report_, .output = output_, .signals = &signals_, .clock = Clock::Real()}));
  SayHello(network_interfaces);
  supervisor->Flush();
  while (order_.state == Order::State::kIncomplete) {
    // The job can end before it has begun.
    if (!ReadMore() || !order_.signals.empty()) return absl::OkStatus();
  }
  EnterDirectory();
  RONDA_ASSIGN_OR_RETURN(std::vector<std::unique_ptr<JobPart>> parts, MakeParts());
  supervisor->Watch(STDIN_FILENO, [&] { Obey(supervisor.get()); });
  supervisor->Run(std::move(parts));
  supervisor->Flush();
  if (!supervisor->ended_by()) return absl::OkStatus();
  return absl::AbortedError(absl::StrCat("the agent ", DescribeInterruption(*supervisor->ended_by())));
}

absl::Status StartAgent(const std::vector<std::string>& network_interfaces) {
  rlimit file_limit = {};
  getrlimit(RLIMIT_NOFILE, &file_limit);
  RONDA_ASSIGN_OR_RETURN(SignalInbox signals, SignalInbox::Create({SIGINT, SIGTERM, SIGHUP}));
  StandardOutput output;
  return Agent(&output, std::move(signals), file_limit).Run(network_interfaces);
}

}  // namespace

int RunAgent(const std::vector<std::string>& network_interfaces) {
  const absl::Status status = StartAgent(network_interfaces);
  if (status.ok()) return 0;
  PrintError(status.message());
  return kLauncherError;
}

}  // namespace ronda
