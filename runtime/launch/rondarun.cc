// rondarun: starts the ranks of a job on this machine. See `rondarun --help`.
#include <fcntl.h>
#include <limits.h>
#include <unistd.h>

#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/clock.h"
#include "runtime/base/status_macros.h"
#include "runtime/base/version.h"
#include "runtime/launch/argument_sources.h"
#include "runtime/launch/arguments.h"
#include "runtime/launch/build_report.h"
#include "runtime/launch/help_text.h"
#include "runtime/launch/hosts.h"
#include "runtime/launch/launch_options.h"
#include "runtime/launch/launch_plan.h"
#include "runtime/launch/random_hex.h"
#include "runtime/launch/standard_output.h"
#include "runtime/launch/supervisor.h"

namespace ronda {
namespace {

constexpr int kUsageError = 2;
constexpr int kLauncherError = 1;

// Descriptors 0, 1 and 2 must be taken: whatever is opened next would become a rank's standard stream.
void OpenMissingStreams() {
  int fd = open("/dev/null", O_RDWR);
  while (fd >= 0 && fd <= STDERR_FILENO) fd = dup(fd);
  if (fd >= 0) close(fd);
}

void PrintError(absl::string_view message) { fprintf(stderr, "rondarun: %s\n", std::string(message).c_str()); }

int Print(const std::string& text) {
  fputs(text.c_str(), stdout);
  return fflush(stdout) == 0 ? 0 : kLauncherError;
}

std::string Hostname() {
  char name[HOST_NAME_MAX + 1] = {};
  return gethostname(name, sizeof(name) - 1) == 0 ? name : "localhost";
}

std::vector<std::string> Environment() {
  std::vector<std::string> variables;
  for (char** variable = environ; *variable != nullptr; ++variable) variables.emplace_back(*variable);
  return variables;
}

absl::StatusOr<PlanRequest> MakeRequest(const LaunchOptions& options, const StandardOutput& output) {
  PlanRequest request;
  request.rank_count = options.rank_count;
  request.hosts = options.hosts;
  if (request.hosts.empty()) request.hosts = {{.host = "localhost", .slots = options.rank_count}};
  RONDA_ASSIGN_OR_RETURN(request.job_id, RandomHex(16));
  RONDA_ASSIGN_OR_RETURN(request.job_secret, RandomHex(32));
  request.settings = options.settings;
  request.output_is_terminal = output.medium(Stream::kStdout) == Medium::kTerminal;
  request.environment = Environment();
  return request;
}

int Launch(const LaunchOptions& options, LaunchPlan plan, const std::string& job_id, StandardOutput* output) {
  auto supervisor = Supervisor::Create(
      {.command = options.command,
       .plan = std::move(plan),
       .job_id = job_id,
       .hostname = Hostname(),
       .shutdown = {.grace = options.grace_period},
       .verbosity = options.verbose ? Supervisor::Verbosity::kVerbose : Supervisor::Verbosity::kNormal,
       .line_prefix = options.line_prefix,
       .output_directory = options.output_directory},
      output, Clock::Real());
  if (!supervisor.ok()) {
    PrintError(supervisor.status().message());
    return kLauncherError;
  }
  return (*supervisor)->Run();
}

int UsageError(const absl::Status& error) {
  PrintError(error.message());
  fprintf(stderr, "%s\n       rondarun --help explains the options\n", UsageLine().c_str());
  return kUsageError;
}

int RunJob(const LaunchOptions& options) {
  const absl::Status hosts = RequireThisHost(options.hosts, Hostname());
  if (!hosts.ok()) return UsageError(hosts);
  StandardOutput output;
  const auto request = MakeRequest(options, output);
  if (!request.ok()) {
    PrintError(request.status().message());
    return kLauncherError;
  }
  auto plan = MakeLaunchPlan(*request);
  if (!plan.ok()) return UsageError(plan.status());
  return Launch(options, *std::move(plan), request->job_id, &output);
}

int Main(const std::vector<std::string>& words) {
  OpenMissingStreams();
  const auto options = ParseArguments(words, ArgumentSources::OfThisProcess());
  if (!options.ok()) return UsageError(options.status());
  for (const std::string& note : options->notes) PrintError(note);
  switch (options->action) {
    case LaunchOptions::Action::kHelp:
      return Print(HelpText());
    case LaunchOptions::Action::kVersion:
      return Print(absl::StrCat("rondarun ", kVersion, "\n"));
    case LaunchOptions::Action::kCheckBuild:
      return Print(BuildReport());
    case LaunchOptions::Action::kDryRun:
    case LaunchOptions::Action::kPreflight:
    case LaunchOptions::Action::kRun:
      return RunJob(*options);
  }
  return kUsageError;
}

}  // namespace
}  // namespace ronda

int main(int argc, char** argv) { return ronda::Main(std::vector<std::string>(argv + 1, argv + argc)); }
