#include "runtime/launch/config_options.h"

#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "runtime/base/status_macros.h"
#include "runtime/launch/option_list.h"

namespace ronda {
namespace {

// horovodrun's sections, and what the names of the options in them begin with.
constexpr std::pair<absl::string_view, absl::string_view> kSections[] = {{"params.", "--"},
                                                                         {"autotune.", "--autotune-"},
                                                                         {"timeline.", "--timeline-"},
                                                                         {"stall-check.", "--stall-check-"},
                                                                         {"library-options.", "--"},
                                                                         {"logging.", "--log-"}};

// What is switched by a key of its own in a section.
constexpr std::pair<absl::string_view, absl::string_view> kSwitches[] = {{"autotune.enabled", "--autotune"},
                                                                         {"stall-check.enabled", "--stall-check"}};

std::string OptionName(absl::string_view key) {
  for (const auto& [name, option] : kSwitches) {
    if (key == name) return std::string(option);
  }
  for (const auto& [section, prefix] : kSections) {
    if (absl::ConsumePrefix(&key, section)) return absl::StrCat(prefix, key);
  }
  const std::string long_name = absl::StrCat("--", key);
  return FindOption(long_name) != nullptr ? long_name : absl::StrCat("-", key);
}

// YAML's words, as far as they are in use.
std::optional<bool> ReadSwitch(absl::string_view text) {
  for (const absl::string_view yes : {"true", "yes", "on"}) {
    if (absl::EqualsIgnoreCase(text, yes)) return true;
  }
  for (const absl::string_view no : {"false", "no", "off"}) {
    if (absl::EqualsIgnoreCase(text, no)) return false;
  }
  return std::nullopt;
}

// Makes the options of one entry.
class EntryReader {
 public:
  EntryReader(absl::string_view file, const ConfigEntry& entry)
      : entry_(entry), where_(absl::StrCat(file, ":", entry.line, ": ", entry.key, ": ")) {}

  absl::StatusOr<std::vector<GivenOption>> Read() const {
    if (entry_.key == "controller") return ReadController();
    const std::string name = OptionName(entry_.key);
    const Option* const option = FindOption(name);
    if (option == nullptr) return Error("no such option; rondarun --help lists them");
    if (option->group == OptionGroup::kQuestions || option->names.front() == "--config-file") {
      return Error(absl::StrCat(name, " is for the command line only"));
    }
    return option->value_name.empty() ? ReadSwitched(name) : ReadValued(name, *option);
  }

 private:
  // horovodrun's word for --mpi and --gloo.
  absl::StatusOr<std::vector<GivenOption>> ReadController() const {
    const std::string name = absl::StrCat("--", absl::StrJoin(entry_.values, ","));
    if (name == "--mpi" || name == "--gloo") return Uses(name, {""});
    return Error(absl::StrCat("takes mpi, for example controller: mpi; got \"", name.substr(2), "\""));
  }

  absl::StatusOr<std::vector<GivenOption>> ReadSwitched(const std::string& name) const {
    const std::string text = absl::StrJoin(entry_.values, ",");
    const std::optional<bool> on = ReadSwitch(text);
    if (!on) return Error(absl::StrCat("takes true or false; got \"", text, "\""));
    if (*on) return Uses(name, {""});
    const std::string opposite = absl::StrCat("--no-", absl::StripPrefix(name, "--"));
    if (FindOption(opposite) == nullptr) return std::vector<GivenOption>();
    return Uses(opposite, {""});
  }

  absl::StatusOr<std::vector<GivenOption>> ReadValued(const std::string& name, const Option& option) const {
    if (option.repetition == Option::Repetition::kAdds) return Uses(name, entry_.values);
    return Uses(name, {absl::StrJoin(entry_.values, ",")});
  }

  std::vector<GivenOption> Uses(const std::string& name, const std::vector<std::string>& values) const {
    std::vector<GivenOption> uses;
    for (const std::string& value : values) {
      uses.push_back({.option = FindOption(name),
                      .use = {.name = name, .value = value, .origin = OptionUse::Origin::kFile},
                      .where = where_});
    }
    return uses;
  }

  absl::Status Error(absl::string_view problem) const {
    return absl::InvalidArgumentError(absl::StrCat(where_, problem));
  }

  const ConfigEntry& entry_;
  const std::string where_;
};

}  // namespace

absl::StatusOr<std::vector<GivenOption>> ConfigOptions(absl::string_view name,
                                                       const std::vector<ConfigEntry>& entries) {
  std::vector<GivenOption> given;
  for (const ConfigEntry& entry : entries) {
    RONDA_ASSIGN_OR_RETURN(std::vector<GivenOption> uses, EntryReader(name, entry).Read());
    for (GivenOption& use : uses) given.push_back(std::move(use));
  }
  return given;
}

}  // namespace ronda
