#include "runtime/launch/config_file.h"

#include <yaml.h>

#include <algorithm>
#include <set>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "runtime/base/status_macros.h"

namespace ronda {
namespace {

// Sections and the options in them; what is deeper is no option of ours.
constexpr int kMaxDepth = 4;

// Reads LibYAML's events, one behind the other: event() is the one at hand.
class EventStream {
 public:
  EventStream(absl::string_view name, absl::string_view content) : name_(name) {
    // Fails only if memory is lacking, and then so does the first Next().
    ready_ = yaml_parser_initialize(&parser_) != 0;
    if (!ready_) return;
    yaml_parser_set_encoding(&parser_, YAML_UTF8_ENCODING);
    // LibYAML asserts that there is an address, even for nothing.
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

  // REQUIRES: type() is YAML_SCALAR_EVENT.
  std::string scalar() const {
    return std::string(reinterpret_cast<const char*>(event_.data.scalar.value), event_.data.scalar.length);
  }

  // Whether the scalar is YAML's word for no value.
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

// Collects the entries of a file.
class ConfigReader {
 public:
  ConfigReader(absl::string_view name, absl::string_view content) : events_(name, content) {}

  absl::StatusOr<std::vector<ConfigEntry>> Read() {
    RONDA_RETURN_IF_ERROR(events_.Next());  // the stream's start
    RONDA_RETURN_IF_ERROR(events_.Next());
    if (events_.type() == YAML_STREAM_END_EVENT) return std::move(entries_);
    RONDA_RETURN_IF_ERROR(events_.Next());  // behind the document's start
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

  // Reads a map whose start is at hand, up to its end.
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
  std::set<std::string> keys_;  // seen so far, to find those that are there twice
  std::vector<ConfigEntry> entries_;
};

}  // namespace

absl::StatusOr<std::vector<ConfigEntry>> ParseConfigFile(absl::string_view name, absl::string_view content) {
  return ConfigReader(name, content).Read();
}

}  // namespace ronda
