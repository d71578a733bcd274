// SPDX-License-Identifier: Apache-2.0

// rondarun: starts the ranks of a job. See `rondarun --help`.
#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "programs/options/arguments.h"
#include "programs/options/launch_options.h"
#include "programs/rondarun/elastic/node_connection.h"
#include "programs/rondarun/job_runner.h"
#include "programs/rondarun/preflight/build_report.h"
#include "programs/rondarun/preflight/host_probe.h"
#include "programs/rondarun/preflight/preflight.h"
#include "runtime/base/environment.h"
#include "runtime/base/version.h"

namespace ronda {
namespace {

// Makes sure that descriptors 0, 1 and 2 are open. Otherwise, the next file to be opened would become a standard stream
// of a rank.
void OpenMissingStreams() {
  int fd = open("/dev/null", O_RDWR);
  while (fd >= 0 && fd <= STDERR_FILENO) fd = dup(fd);
  if (fd >= 0) close(fd);
}

int Print(const std::string& text) {
  fputs(text.c_str(), stdout);
  return fflush(stdout) == 0 ? 0 : kLauncherError;
}

// An internal option: another rondarun starts `rondarun --agent [--name NAME] [INTERFACE,...]` on its hosts.
int RunAgentWith(const std::vector<std::string>& words) {
  const size_t read = words.size() > 2 && words[1] == "--name" ? 3 : 1;
  std::vector<std::string> interfaces;
  if (words.size() > read) interfaces = absl::StrSplit(words[read], ',');
  return RunAgent(interfaces);
}

int Main(const std::vector<std::string>& words) {
  OpenMissingStreams();
  if (!words.empty() && words.front() == "--agent") return RunAgentWith(words);
  // Also internal: a rondarun starts `rondarun --relay FD` for each of its nodes.
  if (words.size() == 2 && words.front() == "--relay") return RunNodeRelay(words[1]);
  if (!words.empty() && words.front() == kProbeWord) return RunProbe({words.begin() + 1, words.end()});
  const auto options = ParseArguments(words, ArgumentSources::OfThisProcess());
  if (!options.ok()) return PrintUsageError(options.status().message());
  for (const std::string& note : options->notes) PrintError(note);
  switch (options->action) {
    case LaunchOptions::Action::kHelp:
      return Print(HelpText());
    case LaunchOptions::Action::kVersion:
      return Print(absl::StrCat("rondarun ", kVersion, "\n"));
    case LaunchOptions::Action::kCheckBuild:
      return Print(BuildReport(FindOptionalParts(ProcessEnvironment())));
    case LaunchOptions::Action::kPreflight:
      return RunPreflight(*options);
    case LaunchOptions::Action::kDryRun:
    case LaunchOptions::Action::kRun:
      return RunJob(*options);
  }
  return kUsageError;
}

}  // namespace
}  // namespace ronda

int main(int argc, char** argv) { return ronda::Main(std::vector<std::string>(argv + 1, argv + argc)); }
