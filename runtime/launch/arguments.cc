#include "runtime/launch/arguments.h"

#include <iterator>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "runtime/base/status_macros.h"
#include "runtime/launch/completion.h"
#include "runtime/launch/config_file.h"
#include "runtime/launch/config_options.h"
#include "runtime/launch/given_options.h"

namespace ronda {
namespace {

constexpr absl::string_view kConfigFile = "--config-file";

// The last one named, with the option's own name for errors.
const OptionUse* FindConfigFile(const std::vector<GivenOption>& given) {
  const OptionUse* found = nullptr;
  for (const GivenOption& one : given) {
    if (one.option->names.front() == kConfigFile) found = &one.use;
  }
  return found;
}

// What the configuration file says, if the command line names one, in front of what the command line says.
absl::StatusOr<std::vector<GivenOption>> WithConfigFile(const std::vector<GivenOption>& command_line,
                                                        const ArgumentSources& sources) {
  const OptionUse* const use = FindConfigFile(command_line);
  if (use == nullptr) return command_line;
  RONDA_ASSIGN_OR_RETURN(const std::string path, ParseText(*use, {.what = "a file", .example = "train.yaml"}));
  const auto content = sources.read_file(path);
  if (!content.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(use->name, " ", path, ": ", content.status().message()));
  }
  RONDA_ASSIGN_OR_RETURN(const std::vector<ConfigEntry> entries, ParseConfigFile(path, *content));
  RONDA_ASSIGN_OR_RETURN(const std::vector<GivenOption> in_file, ConfigOptions(path, entries));
  RONDA_RETURN_IF_ERROR(CheckAgreement(in_file));
  std::vector<GivenOption> all = NotOverridden(in_file, command_line);
  all.insert(all.end(), command_line.begin(), command_line.end());
  return all;
}

absl::Status Apply(const GivenOption& given, CommandLineDraft* draft) {
  const absl::Status status = given.option->effect(given.use, draft);
  if (status.ok() || given.where.empty()) return status;
  return absl::Status(status.code(), absl::StrCat(given.where, status.message()));
}

bool EndsWithQuestion(const std::vector<GivenOption>& given) {
  return !given.empty() && given.back().option->group == OptionGroup::kQuestions;
}

}  // namespace

absl::StatusOr<LaunchOptions> ParseArguments(const std::vector<std::string>& words, const ArgumentSources& sources) {
  CommandLineDraft draft;
  draft.sources = &sources;
  RONDA_ASSIGN_OR_RETURN(GivenWords given, ReadWords(words));
  if (EndsWithQuestion(given.options)) {
    RONDA_RETURN_IF_ERROR(Apply(given.options.back(), &draft));
    return std::move(draft.options);
  }
  RONDA_RETURN_IF_ERROR(CheckAgreement(given.options));
  RONDA_ASSIGN_OR_RETURN(const std::vector<GivenOption> all, WithConfigFile(given.options, sources));
  for (const GivenOption& one : all) RONDA_RETURN_IF_ERROR(Apply(one, &draft));
  draft.options.command = std::move(given.command);
  RONDA_RETURN_IF_ERROR(Complete(&draft));
  return std::move(draft.options);
}

}  // namespace ronda
