#include "runtime/launch/arguments.h"

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "runtime/base/status_macros.h"

namespace ronda {
namespace {

using Action = LaunchOptions::Action;

// An option as the user wrote it.
struct Use {
  std::string name;   // "-np"
  std::string value;  // empty for options that take none
};

struct Flag {
  std::vector<absl::string_view> names;
  absl::string_view value_name;  // empty: takes no value
  absl::string_view help;
  absl::Status (*apply)(const Use& use, LaunchOptions* options);
};

absl::Status BadValue(const Use& use, absl::string_view expected) {
  return absl::InvalidArgumentError(absl::StrCat(use.name, " takes ", expected, "; got \"", use.value, "\""));
}

absl::Status SetRankCount(const Use& use, LaunchOptions* options) {
  int count = 0;
  if (!absl::SimpleAtoi(use.value, &count) || count < 1 || count > kMaxRanks) {
    return BadValue(use, absl::StrCat("a number of ranks from 1 to ", kMaxRanks, ", for example ", use.name, " 4"));
  }
  options->rank_count = count;
  return absl::OkStatus();
}

absl::Status SetHosts(const Use& use, LaunchOptions* options) {
  RONDA_ASSIGN_OR_RETURN(options->hosts, ParseHosts(use.value));
  return absl::OkStatus();
}

absl::Status SetOutputDirectory(const Use& use, LaunchOptions* options) {
  if (use.value.empty()) return BadValue(use, "a directory, for example --output-filename logs");
  options->output_directory = use.value;
  return absl::OkStatus();
}

struct SecondsRange {
  double min = 0;
  double max = 86400;
};

absl::StatusOr<absl::Duration> ParseSeconds(const Use& use, SecondsRange range) {
  double seconds = 0;
  // Written so that NaN is refused too.
  if (!absl::SimpleAtod(use.value, &seconds) || !(seconds >= range.min && seconds <= range.max)) {
    return BadValue(use, absl::StrCat("a number of seconds from ", range.min, " to ", range.max, ", for example ",
                                      use.name, " 10"));
  }
  return absl::Seconds(seconds);
}

absl::Status SetStartTimeout(const Use& use, LaunchOptions* options) {
  // The range that RONDA_START_TIMEOUT has.
  RONDA_ASSIGN_OR_RETURN(const absl::Duration timeout, ParseSeconds(use, {.min = 0.001}));
  options->settings["RONDA_START_TIMEOUT"] = absl::StrCat(absl::ToDoubleSeconds(timeout), "s");
  return absl::OkStatus();
}

absl::Status SetGracePeriod(const Use& use, LaunchOptions* options) {
  RONDA_ASSIGN_OR_RETURN(options->grace_period, ParseSeconds(use, {}));
  return absl::OkStatus();
}

absl::Status SetAutotune(const Use&, LaunchOptions* options) {
  options->settings["RONDA_AUTOTUNE"] = "1";
  return absl::OkStatus();
}

absl::Status UnsetAutotune(const Use&, LaunchOptions* options) {
  options->settings["RONDA_AUTOTUNE"] = "0";
  return absl::OkStatus();
}

absl::Status SetAutotuneLog(const Use& use, LaunchOptions* options) {
  if (use.value.empty()) return BadValue(use, "a file, for example --autotune-log-file tuning.csv");
  options->settings["RONDA_AUTOTUNE_LOG"] = use.value;
  return absl::OkStatus();
}

absl::Status SetAutotuneSteps(const Use& use, LaunchOptions* options) {
  int steps = 0;
  // The range that RONDA_AUTOTUNE_STEPS_PER_SAMPLE has.
  if (!absl::SimpleAtoi(use.value, &steps) || steps < 4 || steps > 1000) {
    return BadValue(use, absl::StrCat("a number of steps from 4 to 1000, for example ", use.name, " 10"));
  }
  options->settings["RONDA_AUTOTUNE_STEPS_PER_SAMPLE"] = absl::StrCat(steps);
  return absl::OkStatus();
}

absl::Status SetVerbose(const Use&, LaunchOptions* options) {
  options->verbose = true;
  return absl::OkStatus();
}

absl::Status SetTimestampPrefix(const Use&, LaunchOptions* options) {
  options->line_prefix = LaunchOptions::LinePrefix::kTimestampAndRank;
  return absl::OkStatus();
}

template <Action kAction>
absl::Status SetAction(const Use&, LaunchOptions* options) {
  options->action = kAction;
  return absl::OkStatus();
}

const std::vector<Flag>& Flags() {
  static const auto* const flags = new std::vector<Flag>{
      {{"-np", "-n", "--num-proc"}, "N", "Start N ranks. Required.", SetRankCount},
      {{"-H", "--hosts"},
       "HOST:SLOTS",
       "Where to start them, and how many at most. This version\n"
       "knows this host only (-H localhost:4), which is the default.",
       SetHosts},
      {{"--output-filename"},
       "DIR",
       "Also write what each rank prints to DIR/rank.N/stdout and\n"
       "DIR/rank.N/stderr.",
       SetOutputDirectory},
      {{"--prefix-output-with-timestamp"}, "", "Begin each line of a rank with the time.", SetTimestampPrefix},
      {{"--start-timeout"},
       "S",
       "Seconds that ranks wait for each other when they start\n"
       "(default: RONDA_START_TIMEOUT, or 30).",
       SetStartTimeout},
      {{"--grace-period"},
       "S",
       "Seconds that ranks get to end after they were told to\n"
       "(SIGTERM) and before they are killed (default: 5).",
       SetGracePeriod},
      {{"--autotune"}, "", "Look for faster settings while the job runs (RONDA_AUTOTUNE=1).", SetAutotune},
      {{"--no-autotune"}, "", "Do not, whatever RONDA_AUTOTUNE says.", UnsetAutotune},
      {{"--autotune-log-file"},
       "FILE",
       "Where autotune writes what it has measured, as CSV\n"
       "(RONDA_AUTOTUNE_LOG).",
       SetAutotuneLog},
      {{"--autotune-steps-per-sample"},
       "N",
       "How many steps autotune measures under the same settings\n"
       "(default: RONDA_AUTOTUNE_STEPS_PER_SAMPLE, or 10).",
       SetAutotuneSteps},
      {{"--verbose"}, "", "Say what is started, and how each rank ended.", SetVerbose},
      {{"--check-build"}, "", "Show what this build of Ronda contains, and exit.", SetAction<Action::kCheckBuild>},
      {{"-v", "--version"}, "", "Show the version, and exit.", SetAction<Action::kVersion>},
      {{"-h", "--help"}, "", "Show this text, and exit.", SetAction<Action::kHelp>},
  };
  return *flags;
}

const Flag* FindFlag(absl::string_view name) {
  for (const Flag& flag : Flags()) {
    if (std::find(flag.names.begin(), flag.names.end(), name) != flag.names.end()) return &flag;
  }
  return nullptr;
}

bool IsLongOption(absl::string_view word) { return absl::StartsWith(word, "--"); }

// Reads the option at words[*next], with its value if it takes one, and moves *next behind it.
absl::Status ReadOption(const std::vector<std::string>& words, size_t* next, LaunchOptions* options) {
  const std::string& word = words[(*next)++];
  const size_t equals = IsLongOption(word) ? word.find('=') : std::string::npos;
  Use use{.name = word.substr(0, equals), .value = ""};
  const Flag* const flag = FindFlag(use.name);
  if (flag == nullptr) return absl::InvalidArgumentError(absl::StrCat("unknown option \"", use.name, "\""));

  const bool takes_value = !flag->value_name.empty();
  if (equals != std::string::npos) {
    if (!takes_value) return absl::InvalidArgumentError(absl::StrCat(use.name, " takes no value; got \"", word, "\""));
    use.value = word.substr(equals + 1);
  } else if (takes_value) {
    if (*next == words.size()) {
      return absl::InvalidArgumentError(absl::StrCat(use.name, " needs a value: ", use.name, " ", flag->value_name));
    }
    use.value = words[(*next)++];
  }
  return flag->apply(use, options);
}

absl::Status CheckComplete(const LaunchOptions& options) {
  if (options.rank_count == 0) {
    return absl::InvalidArgumentError("-np is missing: say how many ranks to start, for example -np 2");
  }
  if (options.command.empty() || options.command.front().empty()) {
    return absl::InvalidArgumentError("the command is missing: name the program that every rank runs");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<LaunchOptions> ParseArguments(const std::vector<std::string>& words) {
  LaunchOptions options;
  size_t next = 0;
  while (next < words.size() && absl::StartsWith(words[next], "-")) {
    if (words[next] == "--") {
      ++next;
      break;
    }
    RONDA_RETURN_IF_ERROR(ReadOption(words, &next, &options));
    if (options.action != Action::kRun) return options;
  }
  options.command.assign(words.begin() + static_cast<std::ptrdiff_t>(next), words.end());
  RONDA_RETURN_IF_ERROR(CheckComplete(options));
  return options;
}

std::string UsageLine() { return "usage: rondarun -np N [OPTION]... [--] COMMAND [ARGUMENT]..."; }

std::string HelpText() {
  std::string text = absl::StrCat(UsageLine(), R"(

Runs COMMAND as a job of N ranks on this machine. What the ranks print comes out line
by line, marked with the rank. When a rank fails, the others are ended, and the last
line says which rank it was, how it ended, and its last error.

    rondarun -np 2 ./train --epochs 3

Options (they end at the first word that is none, or at --):
)");
  for (const Flag& flag : Flags()) {
    absl::StrAppend(&text, "  ", absl::StrJoin(flag.names, ", "), flag.value_name.empty() ? "" : " ", flag.value_name,
                    "\n");
    absl::StrAppend(&text, "        ", absl::StrReplaceAll(flag.help, {{"\n", "\n        "}}), "\n");
  }
  absl::StrAppend(&text, R"(
Exit code: 0 if every rank exits with 0; else the exit code of the first rank to fail, or
128 + N if signal N ended it or told rondarun to end. 2: wrong options. 126: the command
is not executable. 127: the command was not found.

Ctrl+C tells the ranks to end; a second one ends them at once.

Every rank finds its place in RONDA_RANK, RONDA_SIZE, RONDA_LOCAL_RANK, RONDA_LOCAL_SIZE,
RONDA_CROSS_RANK and RONDA_CROSS_SIZE. Rank 0 reads the launcher's standard input, if that is
a file or a pipe; the others have none. When a rank ends, what it started ends with it.
)");
  return text;
}

}  // namespace ronda
