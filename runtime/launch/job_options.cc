#include <algorithm>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "runtime/base/status_macros.h"
#include "runtime/launch/hosts.h"
#include "runtime/launch/option_effects.h"
#include "runtime/launch/option_tables.h"
#include "runtime/launch/shell_words.h"

namespace ronda {
namespace {

using Action = LaunchOptions::Action;
using Binding = LaunchOptions::Binding;
using Launcher = LaunchOptions::Launcher;
using Choice = CommandLineDraft::Choice;

// The most ranks of a job, as in RONDA_SIZE.
constexpr int kMaxJobSize = 1 << 20;

absl::Status SetHosts(const OptionUse& use, CommandLineDraft* draft) {
  RONDA_ASSIGN_OR_RETURN(draft->options.hosts, ParseHosts(use.value));
  return absl::OkStatus();
}

absl::Status SetHostFile(const OptionUse& use, CommandLineDraft* draft) {
  RONDA_ASSIGN_OR_RETURN(const std::string path, ParseText(use, {.what = "a file", .example = "hosts.txt"}));
  const auto content = draft->sources->read_file(path);
  if (!content.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(use.name, " ", path, ": ", content.status().message()));
  }
  RONDA_ASSIGN_OR_RETURN(draft->options.hosts, ParseHostFile(path, *content));
  return absl::OkStatus();
}

absl::Status SetInterfaces(const OptionUse& use, CommandLineDraft* draft) {
  RONDA_ASSIGN_OR_RETURN(draft->options.remote.network_interfaces,
                         ParseList(use, {.what = "interfaces separated by commas", .example = "eth0,eth1"}));
  draft->options.settings["RONDA_NETWORK_INTERFACE"] = use.value;
  return absl::OkStatus();
}

absl::Status SetGracePeriod(const OptionUse& use, CommandLineDraft* draft) {
  RONDA_ASSIGN_OR_RETURN(
      const double seconds,
      ParseNumber(use,
                  {.what = "a number of seconds", .example = "10", .max = 86400, .digits = NumberForm::Digits::kAny}));
  draft->options.grace_period = absl::Seconds(seconds);
  return absl::OkStatus();
}

bool IsVariableName(absl::string_view name) {
  return !name.empty() && !absl::ascii_isdigit(static_cast<unsigned char>(name.front())) &&
         std::all_of(name.begin(), name.end(), [](unsigned char c) { return absl::ascii_isalnum(c) || c == '_'; });
}

bool SoundsSecret(absl::string_view name) {
  constexpr absl::string_view kSigns[] = {"SECRET", "TOKEN", "PASSWORD", "KEY"};
  const std::string upper = absl::AsciiStrToUpper(name);
  return std::any_of(std::begin(kSigns), std::end(kSigns),
                     [&](absl::string_view sign) { return absl::StrContains(upper, sign); });
}

void AddOnce(std::string name, std::vector<std::string>* names) {
  if (std::find(names->begin(), names->end(), name) == names->end()) names->push_back(std::move(name));
}

// -x NAME: with the value it has here. -x NAME=VALUE: with that value.
absl::Status ExportVariable(const OptionUse& use, CommandLineDraft* draft) {
  const size_t equals = use.value.find('=');
  const std::string name = use.value.substr(0, equals);
  if (!IsVariableName(name)) {
    // A malformed assignment may hold a secret: only what stands before it is shown.
    return BadValue({.name = use.name, .value = name},
                    absl::StrCat("NAME or NAME=VALUE, for example ", use.name, " PATH or ", use.name, " DEBUG=1"));
  }
  AddOnce(name, &draft->options.remote.exports);
  if (equals == std::string::npos) {
    draft->options.settings.erase(name);
    if (!draft->sources->is_in_environment(name)) {
      draft->options.notes.push_back(absl::StrCat(use.name, " ", name,
                                                  " has no effect: the variable is not set here; give ", use.name, " ",
                                                  name, "=VALUE, or export it"));
    }
    return absl::OkStatus();
  }
  draft->options.settings[name] = use.value.substr(equals + 1);
  if (SoundsSecret(name) && use.origin == OptionUse::Origin::kCommandLine) {
    draft->options.notes.push_back(absl::StrCat(use.name, " ", name,
                                                "=...: other users of this machine can read the value in the list of "
                                                "processes; export ",
                                                name, " instead, and give ", use.name, " ", name));
  }
  return absl::OkStatus();
}

// Adds the words of the option's value to a list.
template <typename Place>
OptionEffect AddWords(Place place) {
  return [place](const OptionUse& use, CommandLineDraft* draft) -> absl::Status {
    const auto words = SplitShellWords(use.value);
    if (!words.ok() || words->empty()) {
      const absl::string_view why = words.ok() ? "is empty" : words.status().message();
      return BadValue(use, absl::StrCat("words as a shell takes them, and what was given ", why));
    }
    std::vector<std::string>& list = place(draft);
    list.insert(list.end(), words->begin(), words->end());
    return absl::OkStatus();
  };
}

OptionEffect Act(Action action) {
  return Store(
      [](CommandLineDraft * draft) -> auto& { return draft->options.action; }, action);
}

std::vector<Option> StartingOptions() {
  return {
      {OptionGroup::kJob,
       {"-np", "-n", "--num-proc"},
       "N",
       "Start N ranks. Required, unless torchrun's or Paddle's options\nsay how many.",
       StoreInteger([](auto* draft) -> auto& { return draft->options.rank_count; },
                    {.what = "a number of ranks", .example = "4", .min = 1, .max = kMaxJobSize})},
      {OptionGroup::kJob,
       {"--binding"},
       "none|core|numa",
       "Which cores a rank may run on: any, one of its own, or those of\none memory node (default: none).",
       StoreWord(
           [](auto* draft) -> auto& { return draft->options.binding; },
           WordForm<Binding>{{"none", Binding::kNone}, {"core", Binding::kCore}, {"numa", Binding::kNuma}})},
      {OptionGroup::kJob,
       {"--max-restarts", "--max-restart"},
       "N",
       "After a failure, start the whole job again, up to N times\n(default: 0).",
       StoreInteger([](auto* draft) -> auto& { return draft->options.max_restarts; },
                    {.what = "a number of restarts", .example = "3", .max = 1000})},
      {OptionGroup::kJob,
       {"--grace-period"},
       "S",
       "Seconds that ranks get to end after they were told to\n(SIGTERM) and before they are killed (default: 5).",
       SetGracePeriod},
      {OptionGroup::kJob,
       {"-x"},
       "NAME[=VALUE]",
       "Give the ranks this environment variable, on all hosts. May be\nrepeated. Export secrets, and name them "
       "without a value.",
       ExportVariable,
       Option::Repetition::kAdds},
      {OptionGroup::kJob, {"--dry-run"}, "", "Print what would be started, and exit.", Act(Action::kDryRun)},
      {OptionGroup::kJob,
       {"--check"},
       "",
       "Look whether the hosts can run a job together, and exit.",
       Act(Action::kPreflight)},
      {OptionGroup::kJob,
       {"--config-file"},
       "FILE",
       "Read options from a YAML file, as horovodrun does. The command\nline wins.",
       AlreadySo()},
  };
}

std::vector<Option> HostOptions() {
  return {
      {OptionGroup::kHosts,
       {"-H", "--hosts"},
       "HOST:SLOTS,...",
       "Where to start them, and how many at most on each host\n(default: on this host).",
       SetHosts},
      {OptionGroup::kHosts,
       {"--hostfile", "-hostfile"},
       "FILE",
       "The same from a file with a line \"HOST slots=N\" for each host.",
       SetHostFile},
      {OptionGroup::kHosts,
       {"--launcher"},
       "auto|mpirun|ssh",
       "Who starts them on other hosts (default: auto, which is rondarun\nitself on this host, and mpirun on several).",
       StoreWord(
           [](auto* draft) -> auto& { return draft->options.launcher; },
           WordForm<Launcher>{{"auto", Launcher::kAutomatic}, {"mpirun", Launcher::kMpirun}, {"ssh", Launcher::kSsh}})},
      {OptionGroup::kHosts,
       {"--network-interfaces", "--network-interface"},
       "NAME,...",
       "The interfaces that hosts talk over\n(RONDA_NETWORK_INTERFACE; default: any).",
       SetInterfaces},
      {OptionGroup::kHosts,
       {"--ssh-port", "-p"},
       "PORT",
       "The port that ssh connects to.",
       StoreInteger([](auto* draft) -> auto& { return draft->options.remote.ssh_port; },
                    {.what = "a port", .example = "22", .min = 1, .max = 65535})},
      {OptionGroup::kHosts,
       {"--ssh-identity-file", "-i"},
       "FILE",
       "The private key that ssh uses.",
       StoreText([](auto* draft) -> auto& { return draft->options.remote.ssh_identity_file; },
                 {.what = "a file", .example = "~/.ssh/id_ed25519"})},
      {OptionGroup::kHosts,
       {"--launch-agent"},
       "PROGRAM",
       "Called as PROGRAM HOST COMMAND instead of ssh.",
       StoreText([](auto* draft) -> auto& { return draft->options.remote.agent; },
                 {.what = "a program", .example = "/usr/bin/rsh"})},
  };
}

std::vector<Option> MpiOptions() {
  return {
      {OptionGroup::kHosts,
       {"--mpi"},
       "",
       "Start the ranks with mpirun, and let MPI carry data on one host\ntoo (RONDA_MPI=1).",
       Store(
           [](auto* draft) -> auto& { return draft->mpi; }, Choice::kYes)},
      {OptionGroup::kHosts,
       {"--mpi-args"},
       "\"WORDS\"",
       "For mpirun. May be repeated.",
       AddWords([](auto* draft) -> auto& { return draft->options.remote.mpi_arguments; }),
       Option::Repetition::kAdds,
       Option::Value::kAnyWords},
      {OptionGroup::kHosts,
       {"--binding-args"},
       "\"WORDS\"",
       "For mpirun, instead of \"-bind-to none -map-by slot\".",
       AddWords([](auto* draft) -> auto& { return draft->options.remote.binding_arguments; }),
       Option::Repetition::kAdds,
       Option::Value::kAnyWords},
      {OptionGroup::kHosts,
       {"--tcp"},
       "",
       "MPI across hosts over TCP only.",
       Store(
           [](auto* draft) -> auto& { return draft->options.remote.transport; }, RemoteOptions::Transport::kTcp)},
  };
}

std::vector<Option> OutputOptions() {
  return {
      {OptionGroup::kOutput,
       {"--output-filename", "--log-dir"},
       "DIR",
       "Also write what each rank prints to DIR/rank.N/stdout and\nDIR/rank.N/stderr.",
       StoreText([](auto* draft) -> auto& { return draft->options.output_directory; },
                 {.what = "a directory", .example = "logs"})},
      {OptionGroup::kOutput,
       {"--redirects", "-r"},
       "0|1|2|3",
       "Write to those files only, and do not show: 1 stdout, 2 stderr,\n3 both (torchrun's).",
       StoreInteger([](auto* draft) -> auto& { return draft->redirected_streams; },
                    {.what = "a number for all ranks alike", .example = "3", .max = 3})},
      {OptionGroup::kOutput,
       {"--tee", "-t"},
       "0|1|2|3",
       "Show these streams in any case, and write all to the files\n(torchrun's).",
       StoreInteger([](auto* draft) -> auto& { return draft->copied_streams; },
                    {.what = "a number for all ranks alike", .example = "3", .max = 3})},
      {OptionGroup::kOutput,
       {"--prefix-output-with-timestamp", "-prefix-timestamp"},
       "",
       "Begin each line of a rank with the time.",
       Store(
           [](auto* draft) -> auto& { return draft->options.line_prefix; },
           LaunchOptions::LinePrefix::kTimestampAndRank)},
      {OptionGroup::kOutput,
       {"--verbose"},
       "",
       "Say what is started, and how each rank ended.",
       Store(
           [](auto* draft) -> auto& { return draft->options.verbose; }, true)},
  };
}

std::vector<Option> QuestionOptions() {
  return {
      {OptionGroup::kQuestions,
       {"--check-build", "-cb"},
       "",
       "Show what this build of Ronda contains, and exit.",
       Act(Action::kCheckBuild)},
      {OptionGroup::kQuestions, {"--version", "-v"}, "", "Show the version, and exit.", Act(Action::kVersion)},
      {OptionGroup::kQuestions, {"--help", "-h"}, "", "Show this text, and exit.", Act(Action::kHelp)},
  };
}

}  // namespace

std::vector<Option> JobOptions() {
  std::vector<Option> all;
  for (std::vector<Option> (*options)() : {StartingOptions, HostOptions, MpiOptions, OutputOptions, QuestionOptions}) {
    for (Option& option : options()) all.push_back(std::move(option));
  }
  return all;
}

}  // namespace ronda
