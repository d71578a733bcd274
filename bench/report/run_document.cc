// SPDX-License-Identifier: Apache-2.0

#include "bench/report/run_document.h"

#include <algorithm>
#include <filesystem>
#include <limits>
#include <system_error>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "bench/harness/arguments.h"
#include "nlohmann/json.hpp"
#include "runtime/base/files.h"
#include "runtime/base/status_macros.h"

namespace ronda::bench {
namespace {

using Json = nlohmann::json;

// A null stands for a number that is not finite.
double NumberOf(const Json& value) {
  return value.is_null() ? std::numeric_limits<double>::quiet_NaN() : value.get<double>();
}

RunRow RowOf(const Json& object) {
  RunRow row;
  for (const auto& [name, value] : object.get_ref<const Json::object_t&>()) {
    if (value.is_string()) {
      row.texts[name] = value.get<std::string>();
    } else if (value.is_array()) {
      for (const Json& entry : value) row.lists[name].push_back(NumberOf(entry));
    } else if (!value.is_null()) {
      row.numbers[name] = value.get<double>();
    }
  }
  return row;
}

// Throws Json::exception.
RunDocument DocumentOf(const Json& json, const std::string& file) {
  RunDocument run;
  run.name = std::filesystem::path(file).stem().string();
  run.version = json.at("version").get<std::string>();
  run.command = json.at("command").get<std::string>();
  run.date = json.at("date").get<std::string>();
  run.arguments = json.at("arguments").get<std::vector<std::string>>();
  const Json& machine = json.at("machine");
  run.machine = {.cpu = machine.at("cpu").get<std::string>(),
                 .cores = machine.at("cores").get<int>(),
                 .memory_gib = machine.at("memory_gib").get<double>(),
                 .kernel = machine.at("kernel").get<std::string>()};
  run.core_distance_ns = json.at("core_distance_ns").get<std::array<double, 2>>();
  // Earlier versions did not write these.
  run.peers = json.value("peers", run.peers);
  run.busy_cores = json.value("busy_cores", run.busy_cores);
  for (const Json& row : json.at("rows")) run.rows.push_back(RowOf(row));
  return run;
}

template <typename Map>
typename Map::mapped_type Lookup(const Map& map, const std::string& name, typename Map::mapped_type otherwise) {
  const auto found = map.find(name);
  return found == map.end() ? otherwise : found->second;
}

constexpr const char* kSettings[] = {"fusion_threshold", "wire", "cycle_time_us", "backend", "lock"};

// A setting in the form that people write; "" if the row has no such setting.
std::string SettingText(const RunRow& row, const std::string& field) {
  if (row.numbers.count(field) + row.texts.count(field) == 0) return "";
  const double number = row.Number(field);
  if (field == "fusion_threshold") {
    return number == 0 ? "no fusion" : absl::StrCat("fusion ", FormatSize(static_cast<size_t>(number)));
  }
  if (field == "cycle_time_us") return absl::StrCat("cycle ", number, " us");
  if (field == "lock") return "lock " + row.Text(field);
  return field == "wire" && row.Text(field) == "none" ? "fp32" : row.Text(field);
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
  try {
    const Json document = Json::parse(json);
    if (document.at("tool") == "ronda-bench") return DocumentOf(document, file);
    return absl::InvalidArgumentError(absl::StrCat(file, ": not a result of ronda-bench"));
  } catch (const Json::exception& error) {
    return absl::InvalidArgumentError(absl::StrCat(file, ": not a result of ronda-bench: ", error.what()));
  }
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

std::string ImplementationName(const RunRow& row) {
  const std::string name = row.Text("contestant");
  const std::string wire = row.Text("wire");
  // The layers of Ronda have their own names.
  const bool needs_owner = row.Text("kind") == "ronda" && name.rfind("ronda", 0) != 0;
  return absl::StrCat(needs_owner ? "ronda " : "", name, wire.empty() || wire == "none" ? "" : ", " + wire);
}

std::string CaseLabel(const RunRow& row) {
  const double compute = row.Number("compute_ms");
  return absl::StrCat(
      row.Text("preset"), ", ", row.Number("ranks"), " ranks, ",
      compute > 0 ? absl::StrCat(compute, " ms of backward (", row.Text("compute_kind"), ")") : "no computation");
}

ImplementationLabels::ImplementationLabels(const std::vector<RunRow>& rows) {
  for (const RunRow& row : rows) {
    for (const char* field : kSettings) {
      const std::string text = SettingText(row, field);
      if (!text.empty()) values_[field].insert(text);
    }
  }
}

std::string ImplementationLabels::Of(const RunRow& row) const {
  std::string label = row.Text("contestant");
  const char* separator = " ";
  for (const char* field : kSettings) {
    const std::string text = SettingText(row, field);
    const auto values = values_.find(field);
    if (text.empty() || values == values_.end() || values->second.size() < 2) continue;
    absl::StrAppend(&label, separator, text);
    separator = ", ";
  }
  return label;
}

}  // namespace ronda::bench
