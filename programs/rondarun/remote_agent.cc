// SPDX-License-Identifier: Apache-2.0

#include "programs/rondarun/remote_agent.h"

#include <poll.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "programs/options/launch_options.h"
#include "programs/options/local_host.h"
#include "programs/rondarun/elastic/agent_members.h"
#include "programs/rondarun/elastic/member_processes.h"
#include "programs/rondarun/job_runner.h"
#include "programs/rondarun/membership/membership.h"
#include "programs/rondarun/output/output_sinks.h"
#include "programs/rondarun/plan/launch_plan.h"
#include "programs/rondarun/plan/node_plan.h"
#include "programs/rondarun/plan/place_variables.h"
#include "programs/rondarun/supervise/agent.h"
#include "programs/rondarun/supervise/agent_report.h"
#include "programs/rondarun/supervise/guard.h"
#include "programs/rondarun/supervise/job_part.h"
#include "programs/rondarun/supervise/members.h"
#include "programs/rondarun/supervise/poll_set.h"
#include "programs/rondarun/supervise/supervisor.h"
#include "runtime/base/clock.h"
#include "runtime/base/environment.h"
#include "runtime/base/status_macros.h"
#include "runtime/base/types.h"
#include "runtime/base/unique_fd.h"
#include "runtime/net/endpoint.h"

namespace ronda {
namespace {

using Kind = AgentMessage::Kind;

// The launcher's order: the ranks to start, or the members to supervise.
struct Order {
  std::string directory;
  std::string host;
  LaunchOptions::Binding binding = LaunchOptions::Binding::kNone;
  std::vector<std::string> variables;
  std::vector<std::string> command;
  std::map<RankId, std::vector<std::string>> ranks;  // with the variables of each
  struct ElasticJob {
    std::string job_id;
    AgentPart::SignsOfLife signs;
  };
  std::optional<ElasticJob> members;  // nullopt: the job keeps its ranks
  enum class State { kIncomplete, kComplete } state = State::kIncomplete;
  std::vector<AgentMessage> messages;  // about ranks and members that run
};

absl::Duration TimeOf(int64_t milliseconds) {
  return milliseconds == 0 ? absl::InfiniteDuration() : absl::Milliseconds(milliseconds);
}

void Apply(AgentMessage message, Order* order) {
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
    case Kind::kMembers:
      order->members = {.job_id = message.text(0),
                        .signs = {.period = TimeOf(message.number(0)), .timeout = TimeOf(message.number(1))}};
      return;
    case Kind::kGo:
      order->state = Order::State::kComplete;
      return;
    default:
      order->messages.push_back(std::move(message));
      return;
  }
}

bool Holds(const Order& order, Kind kind) {
  return std::any_of(order.messages.begin(), order.messages.end(),
                     [kind](const AgentMessage& message) { return message.kind == kind; });
}

// The agent removes all shared memory whose name starts with "ronda-" and `id`, so `id` must really be a job id.
bool IsJobId(absl::string_view id) {
  return id.size() == 32 && std::all_of(id.begin(), id.end(), [](char c) { return absl::ascii_isxdigit(c); });
}

class Agent {
 public:
  Agent(const AgentOptions& options, StandardOutput* output, SignalInbox signals, rlimit file_limit)
      : options_(options), output_(output), signals_(std::move(signals)), file_limit_(file_limit), report_(queue()) {}

  // Sends the hello, waits for the launcher's order, and executes it.
  absl::StatusOr<AgentEnd> Run();

 private:
  OutputQueue* queue() { return output_->queue(Stream::kStdout); }
  void SayHello();

  // Reads the launcher's next messages into `order_`. Returns false if the input has ended.
  bool ReadMore();

  // Waits for the launcher's order. If the agent must end before the order arrives, returns how.
  absl::StatusOr<std::optional<AgentEnd>> AwaitOrder();
  std::optional<AgentEnd> EndSoFar();

  // If this agent is a node, replaces the launcher's command and variables with the node's own.
  absl::Status UseOwnWords();
  void EnterDirectory();
  std::vector<std::string> CommonEnvironment() const;
  absl::StatusOr<std::vector<std::unique_ptr<JobPart>>> MakeParts() const;
  absl::Status StartMembers(Supervisor* supervisor);

  // Handles messages that the launcher sends while the ranks are running. Kills the ranks if the launcher is gone, or
  // if it has announced the end of the job.
  void Obey(Supervisor* supervisor);

  const AgentOptions& options_;
  StandardOutput* const output_;
  SignalInbox signals_;
  const rlimit file_limit_;
  AgentReport report_;
  AgentMessageReader messages_{AgentMessageReader::Stream::kMessages};
  Order order_;
  UniqueFd name_;                    // of an elastic job's agent
  AgentMembers* members_ = nullptr;  // the supervisor's; nullptr: the job keeps its ranks
  std::optional<AgentEnd::Job> job_end_;
};

void Agent::SayHello() {
  const auto endpoint = ChooseAddress(InterfaceAddresses(), options_.network_interfaces);
  const std::vector<int> ports = FindFreePorts(2);
  report_.SayHello(endpoint.ok() ? endpoint->address : "", {.free = ports[0], .store = ports[1]});
  if (!endpoint.ok() && !options_.network_interfaces.empty()) report_.OnJobFailure(endpoint.status().message(), 1);
}

bool Agent::ReadMore() {
  std::array<char, 65536> buffer;
  const ssize_t count = read(STDIN_FILENO, buffer.data(), buffer.size());
  if (count < 0) return errno == EINTR;
  const absl::string_view bytes(buffer.data(), static_cast<size_t>(count));
  return count > 0 && messages_.Feed(bytes, [this](AgentMessage message) { Apply(std::move(message), &order_); }).ok();
}

// Waits for the order without a time limit, because a node may have to wait for a long time. A signal from the user
// ends the wait.
absl::StatusOr<std::optional<AgentEnd>> Agent::AwaitOrder() {
  std::optional<AgentEnd> end;
  while (order_.state == Order::State::kIncomplete && !end.has_value()) {
    PollSet poll;
    poll.Add(signals_.fd(), POLLIN, [&] {
      const std::optional<int> signo = signals_.Next();
      if (signo.has_value() && *signo != SIGCHLD) end = AgentEnd{.ended_by = signo};
    });
    poll.Add(STDIN_FILENO, POLLIN, [&] {
      if (!end.has_value() && !ReadMore()) end = AgentEnd{};
      if (!end.has_value()) end = EndSoFar();
    });
    RONDA_RETURN_IF_ERROR(poll.Wait(absl::InfiniteDuration()));
  }
  return end;
}

// If the launcher ended the job before the start, returns how the agent must end.
std::optional<AgentEnd> Agent::EndSoFar() {
  for (const AgentMessage& message : order_.messages) {
    if (message.kind != Kind::kEnd) continue;
    return AgentEnd{.job = AgentEnd::Job{.exit_code = static_cast<int>(message.number(0)), .why = message.text(0)}};
  }
  return Holds(order_, Kind::kSignal) ? std::optional<AgentEnd>(AgentEnd{}) : std::nullopt;
}

absl::Status Agent::UseOwnWords() {
  if (options_.own == nullptr) return absl::OkStatus();
  if (!order_.members.has_value() || !IsJobId(order_.members->job_id)) {
    return absl::InternalError("the leader of the job has sent what no leader sends");
  }
  order_.ranks.clear();
  order_.directory.clear();
  order_.command = options_.own->command;
  order_.binding = options_.own->binding;
  order_.variables = VariablesOfNode(*options_.own, ProcessVariables(), order_.members->job_id);
  return absl::OkStatus();
}

void Agent::EnterDirectory() {
  if (order_.directory.empty() || chdir(order_.directory.c_str()) == 0) return;
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
  RONDA_RETURN_IF_ERROR(CheckBinding(cores, order_.binding, local_size));
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

absl::Status Agent::StartMembers(Supervisor* supervisor) {
  RONDA_ASSIGN_OR_RETURN(name_, BecomeAgent(order_.members->job_id, order_.host));
  HostCores cores;
  if (order_.binding != LaunchOptions::Binding::kNone) {
    RONDA_ASSIGN_OR_RETURN(cores, ThisHostsCores());
  }
  const auto make_member = [this, cores, common = CommonEnvironment()](const JobMembership::StartMember& start,
                                                                       int membership_fd) {
    ChildProcess::Options process = {.command = order_.command,
                                     .environment = common,
                                     .cpus = CpusOfRank(cores, order_.binding, start.slot, start.slots)};
    for (std::string& variable : SlotVariables(start.slot, start.slots)) {
      process.environment.push_back(std::move(variable));
    }
    GiveMembership(membership_fd, &process);
    return std::make_unique<RankPart>(start.member, order_.host, std::move(process));
  };
  supervisor->MakeElastic([&](MemberSupervision supervision) {
    auto members = std::make_unique<AgentMembers>(
        AgentMembers::Options{.make_member = make_member,
                              .send = [this](const AgentMessage& message) { report_.Send(message); },
                              .signs = order_.members->signs,
                              .first_messages = std::exchange(order_.messages, {})},
        std::move(supervision));
    members_ = members.get();
    return members;
  });
  report_.BeforeEnds([this](RankId member) { members_->PassFinalMessages(member); });
  return absl::OkStatus();
}

void Agent::Obey(Supervisor* supervisor) {
  const bool more = ReadMore();
  for (const AgentMessage& message : std::exchange(order_.messages, {})) {
    if (message.kind == Kind::kSignal) {
      supervisor->Obey(static_cast<int>(message.number(0)));
    } else if (message.kind == Kind::kEnd) {
      job_end_ = AgentEnd::Job{.exit_code = static_cast<int>(message.number(0)), .why = message.text(0)};
    } else if (members_ != nullptr) {
      members_->Receive(message);
    }
  }
  if (more && !job_end_.has_value()) return;
  supervisor->StopWatching();
  if (members_ != nullptr) members_->Stop("the launcher is gone");
  supervisor->SignalParts(SIGKILL);
}

absl::StatusOr<AgentEnd> Agent::Run() {
  RONDA_ASSIGN_OR_RETURN(
      const std::unique_ptr<Supervisor> supervisor,
      Supervisor::Create({.shutdown = {.grace = options_.grace_period},
                          .on_failure = Supervisor::OnFailure::kGoOn,
                          .ranks = Supervisor::Ranks::kAreHere,
                          .file_limit = file_limit_},
                         {.report = &report_, .output = output_, .signals = &signals_, .clock = Clock::Real()}));
  SayHello();
  supervisor->Flush();
  RONDA_ASSIGN_OR_RETURN(std::optional<AgentEnd> end, AwaitOrder());
  if (end.has_value()) return *std::move(end);
  RONDA_RETURN_IF_ERROR(UseOwnWords());
  EnterDirectory();
  RONDA_ASSIGN_OR_RETURN(std::vector<std::unique_ptr<JobPart>> parts, MakeParts());
  if (order_.members.has_value()) RONDA_RETURN_IF_ERROR(StartMembers(supervisor.get()));
  supervisor->Watch(STDIN_FILENO, [&] { Obey(supervisor.get()); });
  supervisor->Run(std::move(parts));
  std::optional<int> ended_by = supervisor->ended_by();
  // SIGPIPE means that nobody reads the agent's output any more, because the leader is gone. The agent may receive
  // SIGPIPE before it reads the end of its input.
  if (options_.own != nullptr && ended_by == SIGPIPE) ended_by.reset();
  // If a node leaves the job on its own, other nodes of the job may still be running on the same machine.
  const bool may_job_go_on = options_.own != nullptr && ended_by.has_value();
  if (order_.members.has_value() && !may_job_go_on) RemoveSharedMemoryLeftovers(order_.members->job_id);
  const bool is_forsaken = members_ != nullptr && members_->is_forsaken();
  // If the leader is silent or has ended the job, perhaps nobody reads what remains of the output, so the agent does
  // not write it.
  if (!is_forsaken && !job_end_.has_value()) supervisor->Flush();
  return AgentEnd{.ended_by = ended_by,
                  .job = job_end_,
                  .launcher = is_forsaken ? AgentEnd::Launcher::kSilent : AgentEnd::Launcher::kGone};
}

}  // namespace

absl::StatusOr<AgentEnd> RunAgentLoop(const AgentOptions& options) {
  rlimit file_limit = {};
  getrlimit(RLIMIT_NOFILE, &file_limit);
  RONDA_ASSIGN_OR_RETURN(SignalInbox signals, SignalInbox::Create({SIGINT, SIGTERM, SIGHUP, SIGCHLD}));
  StandardOutput output;
  return Agent(options, &output, std::move(signals), file_limit).Run();
}

int RunAgent(const std::vector<std::string>& network_interfaces) {
  const absl::StatusOr<AgentEnd> end = RunAgentLoop({.network_interfaces = network_interfaces});
  const bool is_silent = end.ok() && end->launcher == AgentEnd::Launcher::kSilent;
  if (end.ok() && !is_silent && !end->ended_by.has_value()) return 0;
  if (!end.ok()) {
    PrintError(end.status().message());
  } else {
    PrintError(is_silent ? "the launcher has given no sign of life"
                         : absl::StrCat("the agent ", DescribeInterruption(*end->ended_by)));
  }
  return kLauncherError;
}

}  // namespace ronda
