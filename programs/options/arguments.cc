// SPDX-License-Identifier: Apache-2.0

#include "programs/options/arguments.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "programs/options/config_file.h"
#include "programs/options/horovod_variables.h"
#include "programs/options/local_host.h"
#include "programs/options/option_table.h"
#include "programs/options/shell_words.h"
#include "runtime/base/environment.h"
#include "runtime/base/files.h"
#include "runtime/base/status_macros.h"

namespace ronda {
namespace {

// Returns the last use of the option that names a configuration file, or null if there is none.
const OptionUse* FindConfigFile(const std::vector<GivenOption>& given) {
  const OptionUse* found = nullptr;
  for (const GivenOption& one : given) {
    if (one.option->names.front() == kConfigFileOption) found = &one.use;
  }
  return found;
}

// Returns the options of the configuration file, if the command line names one, followed by the options of the command
// line.
absl::StatusOr<std::vector<GivenOption>> WithConfigFile(const OptionTable& table,
                                                        const std::vector<GivenOption>& command_line,
                                                        const ArgumentSources& sources) {
  const OptionUse* const use = FindConfigFile(command_line);
  if (use == nullptr) return command_line;
  RONDA_ASSIGN_OR_RETURN(const std::string path, ParseText(*use, {.what = "a file", .example = "train.yaml"}));
  const auto content = sources.read_file(path);
  if (!content.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(use->name, " ", content.status().message()));
  }
  RONDA_ASSIGN_OR_RETURN(const std::vector<ConfigEntry> entries, ParseConfigFile(path, *content));
  RONDA_ASSIGN_OR_RETURN(const std::vector<GivenOption> in_file, ConfigOptions(table, path, entries));
  RONDA_RETURN_IF_ERROR(table.CheckAgreement(in_file));
  std::vector<GivenOption> all = table.NotOverridden(in_file, command_line);
  all.insert(all.end(), command_line.begin(), command_line.end());
  return all;
}

// Returns the name that the last of these options gives to the job, or "" if there is none.
std::string NameIn(const std::vector<GivenOption>& given) {
  CommandLineDraft draft(nullptr);
  for (const GivenOption& one : given) {
    if (one.option->names.front() == kNameOption) SetName(one.use, &draft).IgnoreError();
  }
  return draft.options.name;
}

bool EndsWithQuestion(const std::vector<GivenOption>& given) {
  return !given.empty() && given.back().option->kind == Option::Kind::kQuestion;
}

// Returns the command line without the user's command, which comes last, for example "rondarun -np 2".
std::string WordsBefore(const std::vector<std::string>& words, size_t command_size) {
  std::string before = "rondarun";
  for (size_t i = 0; i < words.size() - command_size; ++i) {
    const size_t equals = words[i].find('=');
    const absl::string_view name = absl::string_view(words[i]).substr(0, equals);
    const bool is_secret = equals != std::string::npos && SoundsSecret(name);
    absl::StrAppend(&before, " ", is_secret ? absl::StrCat(name, "=...") : ShellQuote(words[i]));
  }
  return before;
}

}  // namespace

absl::StatusOr<LaunchOptions> ParseArguments(const std::vector<std::string>& words, const ArgumentSources& sources) {
  CommandLineDraft draft(&sources);
  const OptionTable table = RondarunOptions(&draft);
  RONDA_ASSIGN_OR_RETURN(GivenWords given, table.Read(words));
  if (EndsWithQuestion(given.options)) {
    RONDA_RETURN_IF_ERROR(given.options.back().Apply());
    return std::move(draft.options);
  }
  RONDA_RETURN_IF_ERROR(table.CheckAgreement(given.options));
  RONDA_ASSIGN_OR_RETURN(const std::vector<GivenOption> all, WithConfigFile(table, given.options, sources));
  RONDA_ASSIGN_OR_RETURN(const std::vector<GivenOption> horovods, HorovodOptions(table, sources));
  for (const GivenOption& one : table.NotOverridden(horovods, all)) RONDA_RETURN_IF_ERROR(one.Apply());
  for (const GivenOption& one : all) RONDA_RETURN_IF_ERROR(one.Apply());
  if (std::string unused = DescribeUnusedHorovodVariables(sources); !unused.empty()) {
    draft.options.notes.push_back(std::move(unused));
  }
  draft.options.words_before = WordsBefore(words, given.command.size());
  draft.options.command = std::move(given.command);
  RONDA_RETURN_IF_ERROR(Complete(&draft));
  return std::move(draft.options);
}

JobWords FindJobWords(const std::vector<std::string>& words,
                      const std::function<absl::StatusOr<std::string>(const std::string& path)>& read_file) {
  CommandLineDraft unused(nullptr);
  const OptionTable table = RondarunOptions(&unused);
  absl::StatusOr<GivenWords> given = table.Read(words);
  if (!given.ok()) return {};
  const auto all = WithConfigFile(table, given->options, {.read_file = read_file});
  return {.name = NameIn(all.ok() ? *all : given->options), .command = std::move(given->command)};
}

ArgumentSources ArgumentSources::OfThisProcess() {
  return {.read_file = ReadFile,
          .count_cores = CountCores,
          .count_gpus = CountGpus,
          .own_addresses = OwnAddresses,
          .variable = [](const std::string& name) { return ProcessEnvironment()(name.c_str()); },
          .variables = ProcessVariables};
}

std::string UsageLine() { return "usage: rondarun -np N [OPTION]... [--] COMMAND [ARGUMENT]..."; }

std::string HelpText() {
  CommandLineDraft unused(nullptr);
  return absl::StrCat(UsageLine(), R"(

Runs COMMAND as a job of N ranks, on this machine or on several. What the ranks print
comes out line by line, marked with the rank. When a rank fails, the others are ended,
and the last line says which rank it was, how it ended, and its last error.

    rondarun -np 2 ./train --epochs 3
    rondarun -np 4 -H alpha:2,beta:2 ./train --epochs 3
    rondarun --nnodes 2 --node-rank 0 --nproc-per-node 2 --master-addr alpha ./train

Options end at the first word that is none, or at --. Values can also be given as
--option=VALUE.
)",
                      RondarunOptions(&unused).Describe(), R"(
Exit code: 0 if every rank exits with 0; else the exit code of the first rank to fail, or
128 + N if signal N ended it or told rondarun to end. 2: wrong options. 126: the command
is not executable. 127: the command was not found.

Ctrl+C tells the ranks to end; a second one ends them at once. Ctrl+Z stops them, and fg
lets them go on.

Every rank finds its place in RONDA_RANK, RONDA_SIZE, RONDA_LOCAL_RANK, RONDA_LOCAL_SIZE,
RONDA_CROSS_RANK and RONDA_CROSS_SIZE. Rank 0 reads the launcher's standard input; the others
have none. A terminal is rank 0's from the moment at which it reads, and so are Ctrl+C and
Ctrl+Z then. mpirun and agents give rank 0 no terminal. When a rank ends, what it
started ends with it.
)");
}

}  // namespace ronda
