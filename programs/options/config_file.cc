// SPDX-License-Identifier: Apache-2.0

#include "programs/options/config_file.h"

#include <yaml.h>

#include <optional>
#include <set>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "programs/options/option_table.h"
#include "runtime/base/status_macros.h"

namespace ronda {
namespace {

// The deepest level at which a map can contain options. Deeper maps are errors.
constexpr int kMaxDepth = 4;

// Next() advances to LibYAML's next event. The other functions describe the current event.
class EventStream {
 public:
  EventStream(absl::string_view name, absl::string_view content) : name_(name) {
    // Initialising the parser fails only if memory is exhausted. The first call of Next() then returns the error.
    ready_ = yaml_parser_initialize(&parser_) != 0;
    if (!ready_) return;
    yaml_parser_set_encoding(&parser_, YAML_UTF8_ENCODING);
    // LibYAML requires a non-null address even for an empty text.
    const char* const text = content.empty() ? "" : content.data();
    yaml_parser_set_input_string(&parser_, reinterpret_cast<const unsigned char*>(text), content.size());
  }

  ~EventStream() {
    yaml_event_delete(&event_);
    if (ready_) yaml_parser_delete(&parser_);
  }

  EventStream(const EventStream&) = delete;
  EventStream& operator=(const EventStream&) = delete;

  absl::Status Next() {
    yaml_event_delete(&event_);
    event_ = {};
    if (!ready_) return absl::ResourceExhaustedError(absl::StrCat(name_, ": no memory to read it"));
    if (yaml_parser_parse(&parser_, &event_) != 0) return absl::OkStatus();
    const char* const problem = parser_.problem != nullptr ? parser_.problem : "no memory to read it";
    return Error(static_cast<int>(parser_.problem_mark.line) + 1, problem);
  }

  yaml_event_type_t type() const { return event_.type; }
  int line() const { return static_cast<int>(event_.start_mark.line) + 1; }

  // REQUIRES: the current event is a scalar (type() is YAML_SCALAR_EVENT).
  std::string scalar() const {
    return std::string(reinterpret_cast<const char*>(event_.data.scalar.value), event_.data.scalar.length);
  }

  // Returns whether the scalar is a YAML word for a missing value.
  bool IsNull() const {
    if (event_.data.scalar.style != YAML_PLAIN_SCALAR_STYLE) return false;
    const std::string text = scalar();
    return text.empty() || text == "~" || absl::EqualsIgnoreCase(text, "null");
  }

  absl::Status Error(absl::string_view problem) const { return Error(line(), problem); }

 private:
  absl::Status Error(int line, absl::string_view problem) const {
    return absl::InvalidArgumentError(absl::StrCat(name_, ":", line, ": ", problem));
  }

  const absl::string_view name_;
  bool ready_ = false;
  yaml_parser_t parser_ = {};
  yaml_event_t event_ = {};
};

// Collects the entries of a configuration file.
class ConfigReader {
 public:
  ConfigReader(absl::string_view name, absl::string_view content) : events_(name, content) {}

  absl::StatusOr<std::vector<ConfigEntry>> Read() {
    RONDA_RETURN_IF_ERROR(events_.Next());  // the stream's start
    RONDA_RETURN_IF_ERROR(events_.Next());
    if (events_.type() == YAML_STREAM_END_EVENT) return std::move(entries_);
    RONDA_RETURN_IF_ERROR(events_.Next());  // after the document's start
    RONDA_RETURN_IF_ERROR(ReadRoot());
    RONDA_RETURN_IF_ERROR(events_.Next());  // the document's end
    RONDA_RETURN_IF_ERROR(events_.Next());
    if (events_.type() != YAML_STREAM_END_EVENT) return events_.Error("a second document; write one in a file");
    return std::move(entries_);
  }

 private:
  absl::Status ReadRoot() {
    if (events_.type() == YAML_MAPPING_START_EVENT) return ReadMap("", 1);
    if (events_.type() == YAML_SCALAR_EVENT && events_.IsNull()) return absl::OkStatus();
    return events_.Error("a file is a map of options, for example num-proc: 4");
  }

  // Reads a map to its end. The current event must be the start of the map.
  absl::Status ReadMap(const std::string& prefix, int depth) {
    if (depth > kMaxDepth) return events_.Error(absl::StrCat(prefix, "...: maps are nested too deep for an option"));
    while (true) {
      RONDA_RETURN_IF_ERROR(events_.Next());
      if (events_.type() == YAML_MAPPING_END_EVENT) return absl::OkStatus();
      if (events_.type() != YAML_SCALAR_EVENT) return events_.Error("a key is to be the name of an option");
      const std::string key = absl::StrCat(prefix, absl::StrReplaceAll(events_.scalar(), {{"_", "-"}}));
      if (!keys_.insert(key).second) return events_.Error(absl::StrCat(key, " is there twice; give one of them"));
      RONDA_RETURN_IF_ERROR(events_.Next());
      RONDA_RETURN_IF_ERROR(ReadValue(key, depth));
    }
  }

  absl::Status ReadValue(const std::string& key, int depth) {
    switch (events_.type()) {
      case YAML_SCALAR_EVENT:
        if (!events_.IsNull()) entries_.push_back({.key = key, .values = {events_.scalar()}, .line = events_.line()});
        return absl::OkStatus();
      case YAML_SEQUENCE_START_EVENT:
        return ReadList(key);
      case YAML_MAPPING_START_EVENT:
        return ReadMap(absl::StrCat(key, "."), depth + 1);
      default:
        return events_.Error(absl::StrCat(key, ": aliases (*) are not understood; write the value out"));
    }
  }

  absl::Status ReadList(const std::string& key) {
    ConfigEntry entry{.key = key, .values = {}, .line = events_.line()};
    while (true) {
      RONDA_RETURN_IF_ERROR(events_.Next());
      if (events_.type() == YAML_SEQUENCE_END_EVENT) break;
      if (events_.type() != YAML_SCALAR_EVENT) return events_.Error(absl::StrCat(key, " takes a list of plain values"));
      entry.values.push_back(events_.scalar());
    }
    if (!entry.values.empty()) entries_.push_back(std::move(entry));
    return absl::OkStatus();
  }

  EventStream events_;
  std::set<std::string> keys_;  // so far, to find duplicate keys
  std::vector<ConfigEntry> entries_;
};

// The sections of horovodrun's files, and the prefix of the option names in each section.
constexpr std::pair<absl::string_view, absl::string_view> kSections[] = {{"params.", "--"},
                                                                         {"autotune.", "--autotune-"},
                                                                         {"timeline.", "--timeline-"},
                                                                         {"stall-check.", "--stall-check-"},
                                                                         {"library-options.", "--"},
                                                                         {"logging.", "--log-"}};

// In these sections, the key "enabled" switches an option on or off.
constexpr std::pair<absl::string_view, absl::string_view> kSwitches[] = {{"autotune.enabled", "--autotune"},
                                                                         {"stall-check.enabled", "--stall-check"}};

std::string OptionName(const OptionTable& table, absl::string_view key) {
  for (const auto& [name, option] : kSwitches) {
    if (key == name) return std::string(option);
  }
  for (const auto& [section, prefix] : kSections) {
    if (absl::ConsumePrefix(&key, section)) return absl::StrCat(prefix, key);
  }
  const std::string long_name = absl::StrCat("--", key);
  return table.Find(long_name) != nullptr ? long_name : absl::StrCat("-", key);
}

// Parses the common YAML words for true and false.
std::optional<bool> ReadSwitch(absl::string_view text) {
  for (const absl::string_view yes : {"true", "yes", "on"}) {
    if (absl::EqualsIgnoreCase(text, yes)) return true;
  }
  for (const absl::string_view no : {"false", "no", "off"}) {
    if (absl::EqualsIgnoreCase(text, no)) return false;
  }
  return std::nullopt;
}

// Converts one entry of a configuration file to options.
class EntryReader {
 public:
  EntryReader(const OptionTable& table, absl::string_view file, const ConfigEntry& entry)
      : table_(table), entry_(entry), where_(absl::StrCat(file, ":", entry.line, ": ", entry.key, ": ")) {}

  absl::StatusOr<std::vector<GivenOption>> Read() const {
    if (entry_.key == "controller") return ReadController();
    const std::string name = OptionName(table_, entry_.key);
    const Option* const option = table_.Find(name);
    if (option == nullptr) return Error("no such option; rondarun --help lists them");
    if (option->kind == Option::Kind::kQuestion || option->names.front() == kConfigFileOption) {
      return Error(absl::StrCat(name, " is for the command line only"));
    }
    const bool is_switched = option->value_name.empty() || (option->value == Option::Value::kOptional &&
                                                            ReadSwitch(absl::StrJoin(entry_.values, ",")));
    return is_switched ? ReadSwitched(name) : ReadValued(name, *option);
  }

 private:
  // Reads horovodrun's "controller" key, which stands for --mpi or --gloo.
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
    if (table_.Find(opposite) == nullptr) return std::vector<GivenOption>();
    return Uses(opposite, {""});
  }

  absl::StatusOr<std::vector<GivenOption>> ReadValued(const std::string& name, const Option& option) const {
    if (option.repetition == Option::Repetition::kAdds) return Uses(name, entry_.values);
    return Uses(name, {absl::StrJoin(entry_.values, ",")});
  }

  std::vector<GivenOption> Uses(const std::string& name, const std::vector<std::string>& values) const {
    std::vector<GivenOption> uses;
    for (const std::string& value : values) {
      uses.push_back({.option = table_.Find(name),
                      .use = {.name = name, .value = value, .origin = OptionUse::Origin::kFile},
                      .where = where_});
    }
    return uses;
  }

  absl::Status Error(absl::string_view problem) const {
    return absl::InvalidArgumentError(absl::StrCat(where_, problem));
  }

  const OptionTable& table_;
  const ConfigEntry& entry_;
  const std::string where_;
};

}  // namespace

absl::StatusOr<std::vector<ConfigEntry>> ParseConfigFile(absl::string_view name, absl::string_view content) {
  return ConfigReader(name, content).Read();
}

absl::StatusOr<std::vector<GivenOption>> ConfigOptions(const OptionTable& table, absl::string_view name,
                                                       const std::vector<ConfigEntry>& entries) {
  std::vector<GivenOption> given;
  for (const ConfigEntry& entry : entries) {
    RONDA_ASSIGN_OR_RETURN(std::vector<GivenOption> uses, EntryReader(table, name, entry).Read());
    for (GivenOption& use : uses) given.push_back(std::move(use));
  }
  return given;
}

}  // namespace ronda
