#include "bench/report/run_document.h"

#include <google/protobuf/struct.pb.h>
#include <google/protobuf/util/json_util.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <system_error>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "bench/files.h"
#include "runtime/base/status_macros.h"

namespace ronda::bench {
namespace {

using JsonObject = google::protobuf::Struct;
using JsonValue = google::protobuf::Value;

// A default value, which is none of text, number, list and object, if there is no such field.
const JsonValue& Field(const JsonObject& object, const std::string& name) {
  const auto found = object.fields().find(name);
  return found == object.fields().end() ? JsonValue::default_instance() : found->second;
}

// A null stands for a number that is not finite.
double NumberOf(const JsonValue& value) {
  return value.kind_case() == JsonValue::kNumberValue ? value.number_value() : std::numeric_limits<double>::quiet_NaN();
}

std::vector<double> NumbersOf(const JsonValue& value) {
  std::vector<double> numbers;
  for (const JsonValue& entry : value.list_value().values()) numbers.push_back(NumberOf(entry));
  return numbers;
}

RunRow RowOf(const JsonObject& object) {
  RunRow row;
  for (const auto& [name, value] : object.fields()) {
    if (value.kind_case() == JsonValue::kNumberValue) row.numbers[name] = value.number_value();
    if (value.kind_case() == JsonValue::kStringValue) row.texts[name] = value.string_value();
    if (value.kind_case() == JsonValue::kListValue) row.lists[name] = NumbersOf(value);
  }
  return row;
}

Machine MachineOf(const JsonObject& object) {
  return {.cpu = Field(object, "cpu").string_value(),
          .cores = static_cast<int>(Field(object, "cores").number_value()),
          .memory_gib = Field(object, "memory_gib").number_value(),
          .kernel = Field(object, "kernel").string_value()};
}

template <typename Map>
typename Map::mapped_type Lookup(const Map& map, const std::string& name, typename Map::mapped_type otherwise) {
  const auto found = map.find(name);
  return found == map.end() ? otherwise : found->second;
}

}  // namespace

double RunRow::Number(const std::string& name) const {
  return Lookup(numbers, name, std::numeric_limits<double>::quiet_NaN());
}
std::string RunRow::Text(const std::string& name) const { return Lookup(texts, name, ""); }
std::vector<double> RunRow::List(const std::string& name) const { return Lookup(lists, name, {}); }

std::string RunDocument::CommandLine() const {
  return absl::StrCat("ronda-bench ", command, arguments.empty() ? "" : " ", absl::StrJoin(arguments, " "));
}

absl::StatusOr<RunDocument> ParseRun(const std::string& json, const std::string& file) {
  JsonObject object;
  const auto parsed = google::protobuf::util::JsonStringToMessage(json, &object);
  if (!parsed.ok()) return absl::InvalidArgumentError(absl::StrCat(file, ": no JSON: ", parsed.ToString()));
  if (Field(object, "tool").string_value() != "ronda-bench") {
    return absl::InvalidArgumentError(absl::StrCat(file, ": not a result of ronda-bench"));
  }
  RunDocument run;
  run.name = std::filesystem::path(file).stem().string();
  run.version = Field(object, "version").string_value();
  run.command = Field(object, "command").string_value();
  run.date = Field(object, "date").string_value();
  run.machine = MachineOf(Field(object, "machine").struct_value());
  for (const JsonValue& word : Field(object, "arguments").list_value().values()) {
    run.arguments.push_back(word.string_value());
  }
  const std::vector<double> distances = NumbersOf(Field(object, "core_distance_ns"));
  std::copy_n(distances.begin(), std::min(distances.size(), run.core_distance_ns.size()), run.core_distance_ns.begin());
  for (const JsonValue& row : Field(object, "rows").list_value().values()) {
    run.rows.push_back(RowOf(row.struct_value()));
  }
  return run;
}

absl::StatusOr<std::vector<RunDocument>> ReadRuns(const std::string& directory) {
  std::error_code error;
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(directory, error)) {
    if (entry.path().extension() == ".json") paths.push_back(entry.path());
  }
  if (error) return absl::NotFoundError(absl::StrCat(directory, ": ", error.message()));
  if (paths.empty()) return absl::NotFoundError(absl::StrCat(directory, ": there is no file *.json in this folder"));
  std::sort(paths.begin(), paths.end());
  std::vector<RunDocument> runs;
  for (const std::filesystem::path& path : paths) {
    RONDA_ASSIGN_OR_RETURN(const std::string text, ReadFile(path.string()));
    RONDA_ASSIGN_OR_RETURN(runs.emplace_back(), ParseRun(text, path.string()));
  }
  return runs;
}

}  // namespace ronda::bench
