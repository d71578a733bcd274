// The command line of rondarun.
#ifndef RONDA_RUNTIME_LAUNCH_ARGUMENTS_H_
#define RONDA_RUNTIME_LAUNCH_ARGUMENTS_H_

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "runtime/launch/hosts.h"

namespace ronda {

// What the user asks for.
struct LaunchOptions {
  enum class Action { kRun, kHelp, kVersion, kCheckBuild };
  // How a line of a rank is marked in the launcher's output.
  enum class LinePrefix { kRank, kTimestampAndRank };

  Action action = Action::kRun;
  int rank_count = 0;
  std::vector<HostSlots> hosts;  // empty: this host, with as many slots as there are ranks
  bool verbose = false;
  std::string output_directory;  // empty: no files
  LinePrefix line_prefix = LinePrefix::kRank;
  absl::Duration grace_period = absl::Seconds(5);
  std::map<std::string, std::string> settings;  // environment variables that options set for the ranks
  std::vector<std::string> command;             // program and its arguments; not empty if action is kRun
};

// The most ranks that one rondarun starts: beyond it, a typing error is likelier than a machine of that size.
inline constexpr int kMaxRanks = 1024;

// Reads the words after the program's name. Options end at the first word that is none, or at "--"; the rest is the
// command. A repeated option replaces the earlier one. --help, --version and --check-build end the reading.
//
// Errors: INVALID_ARGUMENT that quotes the culprit and shows the right form.
absl::StatusOr<LaunchOptions> ParseArguments(const std::vector<std::string>& words);

// One line: how to call rondarun.
std::string UsageLine();

// The text of --help.
std::string HelpText();

}  // namespace ronda

#endif  // RONDA_RUNTIME_LAUNCH_ARGUMENTS_H_
