#include "bench/results.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "bench/files.h"
#include "runtime/base/status_macros.h"
#include "runtime/base/version.h"

namespace ronda::bench {
namespace {

std::string Number(double number) { return std::isfinite(number) ? absl::StrFormat("%.9g", number) : "null"; }

std::string JsonNumbers(const std::vector<double>& numbers) {
  return absl::StrCat("[", absl::StrJoin(numbers, ",", [](std::string* out, double n) { out->append(Number(n)); }),
                      "]");
}

struct ToJsonText {
  std::string operator()(int64_t number) const { return absl::StrCat(number); }
  std::string operator()(double number) const { return Number(number); }
  std::string operator()(const std::string& text) const { return JsonString(text); }
  std::string operator()(const std::vector<double>& numbers) const { return JsonNumbers(numbers); }
};

// RFC 4180: quotes are doubled inside quotes.
std::string CsvText(const std::string& text) {
  if (text.find_first_of(",\"\n\r") == std::string::npos) return text;
  return absl::StrCat("\"", absl::StrReplaceAll(text, {{"\"", "\"\""}}), "\"");
}

struct ToCsvText {
  std::string operator()(int64_t number) const { return absl::StrCat(number); }
  std::string operator()(double number) const { return std::isfinite(number) ? Number(number) : ""; }
  std::string operator()(const std::string& text) const { return CsvText(text); }
  std::string operator()(const std::vector<double>& numbers) const {
    return absl::StrJoin(numbers, ";", [](std::string* out, double number) { out->append(Number(number)); });
  }
};

std::string JsonRow(const ResultRow& row) {
  return absl::StrCat("{",
                      absl::StrJoin(row, ",",
                                    [](std::string* out, const ResultRow::value_type& field) {
                                      absl::StrAppend(out, JsonString(field.first), ":",
                                                      std::visit(ToJsonText(), field.second));
                                    }),
                      "}");
}

std::vector<std::string> ColumnNames(const std::vector<ResultRow>& rows) {
  std::vector<std::string> names;
  for (const ResultRow& row : rows) {
    for (const auto& [name, value] : row) {
      if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
    }
  }
  return names;
}

std::string CsvCell(const ResultRow& row, const std::string& column) {
  for (const auto& [name, value] : row) {
    if (name == column) return std::visit(ToCsvText(), value);
  }
  return "";
}

}  // namespace

std::string JsonString(const std::string& text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      absl::StrAppend(&quoted, "\\", std::string(1, c));
    } else if (static_cast<unsigned char>(c) < 0x20) {
      absl::StrAppendFormat(&quoted, "\\u%04x", static_cast<int>(c));
    } else {
      quoted.push_back(c);
    }
  }
  quoted.push_back('"');
  return quoted;
}

std::string Results::ToJson(const Machine& machine, const std::string& date) const {
  const std::string arguments =
      absl::StrJoin(arguments_, ",", [](std::string* out, const std::string& word) { out->append(JsonString(word)); });
  const std::string rows =
      absl::StrJoin(rows_, ",\n  ", [](std::string* out, const ResultRow& row) { out->append(JsonRow(row)); });
  return absl::StrCat("{\"tool\":\"ronda-bench\",\"version\":", JsonString(kVersion),
                      ",\"command\":", JsonString(command_), ",\"date\":", JsonString(date),
                      ",\n \"machine\":{\"cpu\":", JsonString(machine.cpu), ",\"cores\":", machine.cores,
                      ",\"memory_gib\":", Number(machine.memory_gib), ",\"kernel\":", JsonString(machine.kernel),
                      "},\n \"core_distance_ns\":[", Number(core_distance_[0]), ",", Number(core_distance_[1]),
                      "],\"arguments\":[", arguments, "],\n \"rows\":[\n  ", rows, "\n ]}\n");
}

std::string Results::ToCsv() const {
  const std::vector<std::string> columns = ColumnNames(rows_);
  std::string text = absl::StrJoin(columns, ",") + "\n";
  for (const ResultRow& row : rows_) {
    const auto append_cell = [&](std::string* out, const std::string& column) { out->append(CsvCell(row, column)); };
    absl::StrAppend(&text, absl::StrJoin(columns, ",", append_cell), "\n");
  }
  return text;
}

absl::Status Results::Write(const Files& files) const {
  if (!files.json.empty()) RONDA_RETURN_IF_ERROR(WriteFile(files.json, ToJson(DescribeMachine(), NowInUtc())));
  if (!files.csv.empty()) RONDA_RETURN_IF_ERROR(WriteFile(files.csv, ToCsv()));
  return absl::OkStatus();
}

}  // namespace ronda::bench
