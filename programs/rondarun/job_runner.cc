// SPDX-License-Identifier: Apache-2.0

#include "programs/rondarun/job_runner.h"

#include <sys/random.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "programs/options/arguments.h"
#include "programs/options/local_host.h"
#include "programs/rondarun/elastic/elastic_job.h"
#include "programs/rondarun/elastic/node_list.h"
#include "programs/rondarun/job_observer.h"
#include "programs/rondarun/node.h"
#include "programs/rondarun/output/output_sinks.h"
#include "programs/rondarun/plan/job_plan.h"
#include "programs/rondarun/preflight/build_report.h"
#include "programs/rondarun/supervise/job_report.h"
#include "programs/rondarun/supervise/members.h"
#include "programs/rondarun/supervise/poll_set.h"
#include "programs/rondarun/supervise/supervisor.h"
#include "runtime/base/clock.h"
#include "runtime/base/environment.h"
#include "runtime/base/peer.h"
#include "runtime/base/status_macros.h"
#include "runtime/monitor/summary_file.h"
#include "runtime/net/endpoint.h"

namespace ronda {
namespace {

// Raises the limit on open files, because the launcher needs several descriptors per rank. Returns the previous limit,
// which applies to the ranks.
rlimit RaiseFileLimit() {
  rlimit before = {};
  getrlimit(RLIMIT_NOFILE, &before);
  const rlimit raised = {.rlim_cur = before.rlim_max, .rlim_max = before.rlim_max};
  setrlimit(RLIMIT_NOFILE, &raised);
  return before;
}

// Returns `byte_count` random bytes from the kernel, as hexadecimal digits. The result can serve as a secret. REQUIRES:
// byte_count <= 256, so that a single call of getrandom returns all bytes.
absl::StatusOr<std::string> RandomHex(size_t byte_count) {
  std::string bytes(byte_count, '\0');
  if (getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(byte_count)) {
    return absl::ErrnoToStatus(errno, "cannot get random numbers from the system (getrandom)");
  }
  return absl::BytesToHexString(bytes);
}

// Returns the path of the ronda-monitor in rondarun's folder, where both are installed. If that folder has no
// ronda-monitor, returns only the name, which is then looked up in PATH.
std::string MonitorBeside(const std::string& program) {
  constexpr absl::string_view kName = "ronda-monitor";
  const std::string path = absl::StrCat(program.substr(0, program.rfind('/') + 1), kName);
  return access(path.c_str(), X_OK) == 0 ? path : std::string(kName);
}

absl::StatusOr<LaunchFacts> GatherFacts(const LaunchOptions& options, const StandardOutput& output) {
  LaunchFacts facts;
  facts.hostname = HostName();
  facts.own_addresses = OwnAddresses();
  facts.interfaces = InterfaceAddresses();
  facts.program = ProgramPath();
  facts.monitor = MonitorBeside(facts.program);
  const std::vector<int> ports = FindFreePorts(2);
  facts.free_port = ports[0];
  facts.store_port = ports[1];
  facts.environment = ProcessVariables();
  const bool is_terminal = output.medium(Stream::kStdout) == Medium::kTerminal;
  facts.output = is_terminal ? LaunchFacts::Output::kTerminal : LaunchFacts::Output::kFile;
  facts.user = geteuid() == 0 ? LaunchFacts::User::kRoot : LaunchFacts::User::kOther;
  if (options.binding != LaunchOptions::Binding::kNone) {
    RONDA_ASSIGN_OR_RETURN(facts.cores, ThisHostsCores());
  }
  facts.find_mpi_plugin = [](Mpirun mpirun, const std::string& path) { return FindMpiPlugin(mpirun, path).status(); };
  RONDA_ASSIGN_OR_RETURN(facts.job_id, RandomHex(16));
  RONDA_ASSIGN_OR_RETURN(facts.job_secret, RandomHex(32));
  return facts;
}

// Runs a job and, after a failure, runs it again with the same options as often as they allow.
class JobRunner {
 public:
  // `nodes` is the result of LeadNodes if the job's nodes connect by themselves.
  JobRunner(const LaunchOptions& options, StandardOutput* output, SignalInbox signals, rlimit file_limit,
            std::shared_ptr<NodeList> nodes)
      : options_(options),
        output_(output),
        signals_(std::move(signals)),
        file_limit_(file_limit),
        nodes_(std::move(nodes)) {}

  int Run();

 private:
  // How an attempt to run the job ended.
  struct Outcome {
    int exit_code = 0;
    enum class Next { kEnd, kMayRetry } next = Next::kEnd;
  };

  Outcome Attempt(int number);
  // The ranks inherit `summary_file`.
  absl::StatusOr<Outcome> RunPlan(JobPlan plan, int number, const SummaryFile& summary_file);
  absl::StatusOr<std::unique_ptr<JobReport>> MakeReport(const JobPlan& plan, int number);
  void SayAttempt(JobReport* report, int number) const;

  const LaunchOptions& options_;
  StandardOutput* const output_;
  SignalInbox signals_;
  const rlimit file_limit_;
  const std::shared_ptr<NodeList> nodes_;  // nullptr: no nodes come by themselves
};

int JobRunner::Run() {
  for (int number = 1;; ++number) {
    const Outcome outcome = Attempt(number);
    if (outcome.next == Outcome::Next::kEnd || number > options_.max_restarts) return outcome.exit_code;
  }
}

JobRunner::Outcome JobRunner::Attempt(int number) {
  auto facts = GatherFacts(options_, *output_);
  const SummaryFile summary_file;
  if (facts.ok()) {
    facts->nodes = nodes_;
    if (options_.summary) facts->summary_file = summary_file.fd();
  }
  auto plan = facts.ok() ? MakeJobPlan(options_, *facts) : facts.status();
  if (!plan.ok() && facts.ok()) return {.exit_code = PrintUsageError(plan.status().message())};
  const auto outcome = plan.ok() ? RunPlan(*std::move(plan), number, summary_file) : plan.status();
  if (outcome.ok()) return *outcome;
  PrintError(outcome.status().message());
  return {.exit_code = kLauncherError};
}

absl::StatusOr<JobRunner::Outcome> JobRunner::RunPlan(JobPlan plan, int number, const SummaryFile& summary_file) {
  RONDA_ASSIGN_OR_RETURN(const std::unique_ptr<JobReport> report, MakeReport(plan, number));
  RONDA_ASSIGN_OR_RETURN(
      const std::unique_ptr<Supervisor> supervisor,
      Supervisor::Create({.job_id = plan.job_id,
                          .shutdown = plan.shutdown,
                          .start_timeout = plan.start_timeout,
                          .file_limit = file_limit_},
                         {.report = report.get(), .output = output_, .signals = &signals_, .clock = Clock::Real()}));
  SayAttempt(report.get(), number);
  for (const std::string& text : plan.notes) {
    if (number == 1) report->Say(text);  // a restart would only repeat the notes
  }
  for (const std::string& text : plan.explanations) report->Explain(text);
  JobObserver observer(plan.job_id, report.get(), &summary_file);
  if (plan.elastic.has_value()) {
    supervisor->MakeElastic([&plan](MemberSupervision supervision) {
      return std::make_unique<ElasticJob>(*std::move(plan.elastic), std::move(supervision));
    });
  }
  if (options_.summary) supervisor->Repeat([&] { return observer.Look(); });
  supervisor->Run(std::move(plan.parts));
  if (options_.summary) observer.Summarize();

  std::optional<JobReport::Interruption> interruption;
  if (const std::optional<int> signo = supervisor->ended_by()) {
    interruption = JobReport::Interruption{.what = DescribeInterruption(*signo), .exit_code = 128 + *signo};
  }
  Outcome outcome = {.exit_code = report->Conclude(interruption)};
  const bool failed = outcome.exit_code != 0 && !interruption.has_value() && report->rank_failed();
  if (failed) outcome.next = Outcome::Next::kMayRetry;
  if (nodes_ != nullptr) nodes_->Conclude(outcome.exit_code, report->conclusion());
  supervisor->Flush();
  const bool lost_output = supervisor->has_lost_output() || report->has_lost_output();
  if (outcome.exit_code == 0 && lost_output) outcome.exit_code = 1;
  return outcome;
}

absl::StatusOr<std::unique_ptr<JobReport>> JobRunner::MakeReport(const JobPlan& plan, int number) {
  JobReport::Options options = {
      .rank_count = plan.rank_count,
      .naming = plan.elastic.has_value() ? Naming::kMember : Naming::kRank,
      .verbosity = options_.verbose ? JobReport::Verbosity::kVerbose : JobReport::Verbosity::kNormal,
      .line_prefix = options_.line_prefix,
      .hidden_streams = options_.hidden_streams};
  if (!options_.output_directory.empty()) {
    RONDA_ASSIGN_OR_RETURN(options.files, OutputFiles::Create(options_.output_directory, plan.ranks, number - 1));
  }
  return std::make_unique<JobReport>(std::move(options), output_, Clock::Real());
}

void JobRunner::SayAttempt(JobReport* report, int number) const {
  if (number == 1) return;
  report->Say(absl::StrCat("the job has failed; starting it again (restart ", number - 1, " of at most ",
                           options_.max_restarts, ")"));
}

bool IsNumberedByArrival(const LaunchOptions& options) {
  return options.nodes.has_value() && options.nodes->numbering == NodeGroup::Numbering::kByArrival;
}

int DryRun(const LaunchOptions& options, const StandardOutput& output) {
  const auto facts = GatherFacts(options, output);
  const auto plan = facts.ok() ? MakeJobPlan(options, *facts) : facts.status();
  if (!plan.ok()) return PrintUsageError(plan.status().message());
  if (IsNumberedByArrival(options)) PrintError("nodes get their numbers as they come; this one is shown as node 0");
  for (const std::string& note : plan->notes) PrintError(note);
  for (const std::string& command : plan->commands) printf("%s\n", command.c_str());
  return fflush(stdout) == 0 ? 0 : kLauncherError;
}

std::vector<int> SignalsOf(const LaunchOptions& options) {
  std::vector<int> signals = options.signals_to_pass;
  if (signals.empty()) signals = {SIGINT, SIGTERM, SIGHUP};
  signals.push_back(SIGTSTP);  // from the stop key, which reaches only this process' group
  // SIGCHLD tells the launcher that a member has stopped or continued, or that a rank has stopped because it reads the
  // terminal.
  if (options.elastic.has_value() || isatty(STDIN_FILENO) == 1) signals.push_back(SIGCHLD);
  return signals;
}

}  // namespace

void PrintError(absl::string_view message) { fprintf(stderr, "rondarun: %s\n", std::string(message).c_str()); }

int PrintUsageError(absl::string_view message) {
  PrintError(message);
  fprintf(stderr, "%s\n       rondarun --help explains the options\n", UsageLine().c_str());
  return kUsageError;
}

int RunJob(const LaunchOptions& asked) {
  if (asked.action == LaunchOptions::Action::kDryRun) return DryRun(asked, StandardOutput());
  LaunchOptions options = asked;
  if (IsNumberedByArrival(options)) {
    const absl::StatusOr<int> number = NumberThisNode(options);
    if (!number.ok()) {
      PrintError(number.status().message());
      return kLauncherError;
    }
    options.nodes->node_rank = *number;
  }
  std::shared_ptr<NodeList> nodes;
  if (options.elastic.has_value() && options.elastic->nodes.has_value()) {
    auto led = LeadNodes(options);
    if (!led.ok()) {
      PrintError(led.status().message());
      return kLauncherError;
    }
    if (*led == nullptr) return RunNode(options);
    nodes = *std::move(led);
  }
  StandardOutput output;
  auto signals = SignalInbox::Create(SignalsOf(options));
  if (!signals.ok()) {
    PrintError(signals.status().message());
    return kLauncherError;
  }
  return JobRunner(options, &output, *std::move(signals), RaiseFileLimit(), std::move(nodes)).Run();
}

}  // namespace ronda
