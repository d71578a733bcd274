// SPDX-License-Identifier: Apache-2.0

#include "bench/harness/results.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "nlohmann/json.hpp"
#include "runtime/base/files.h"
#include "runtime/base/status_macros.h"
#include "runtime/base/version.h"

namespace ronda::bench {
namespace {

using Json = nlohmann::ordered_json;

// Replaces bytes that are not valid UTF-8, because a file name may contain such bytes.
std::string Compact(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

Json JsonOf(const ResultRow& row) {
  Json object = Json::object();
  for (const auto& [name, value] : row) {
    std::visit([&object, &name = name](const auto& any) { object[name] = any; }, value);
  }
  return object;
}

// Returns the number in `value`, or NaN for null. REQUIRES: `value` is a number or null.
double NumberOf(const Json& value) {
  return value.is_null() ? std::numeric_limits<double>::quiet_NaN() : value.get<double>();
}

// Converts `json` to a Value. Throws Json::exception if the conversion is impossible.
Value ValueOf(const Json& json) {
  if (json.is_number_integer()) return json.get<int64_t>();
  if (json.is_string()) return json.get<std::string>();
  if (!json.is_array()) return NumberOf(json);
  std::vector<double> numbers;
  for (const Json& entry : json) numbers.push_back(NumberOf(entry));
  return numbers;
}

std::string CsvNumber(double number) { return std::isfinite(number) ? absl::StrFormat("%.9g", number) : ""; }

struct ToCsvText {
  std::string operator()(int64_t number) const { return absl::StrCat(number); }
  std::string operator()(double number) const { return CsvNumber(number); }
  // Quotes a cell as RFC 4180 requires: a quote inside the quotes is doubled.
  std::string operator()(const std::string& text) const {
    if (text.find_first_of(",\"\n\r") == std::string::npos) return text;
    return absl::StrCat("\"", absl::StrReplaceAll(text, {{"\"", "\"\""}}), "\"");
  }
  std::string operator()(const std::vector<double>& numbers) const {
    return absl::StrJoin(numbers, ";", [](std::string* out, double number) { out->append(CsvNumber(number)); });
  }
};

std::vector<std::string> ColumnNames(const std::vector<ResultRow>& rows) {
  std::vector<std::string> names;
  for (const ResultRow& row : rows) {
    for (const auto& [name, value] : row) {
      if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
    }
  }
  return names;
}

// Returns the text that `converter` produces from a field, or "" if the row has no such field.
template <typename Converter>
std::string FieldText(const ResultRow& row, const std::string& field, const Converter& converter) {
  for (const auto& [name, value] : row) {
    if (name == field) return std::visit(converter, value);
  }
  return "";
}

struct ToCellText {
  int digits = 0;

  std::string operator()(double number) const { return Fixed(number, digits); }
  template <typename T>
  std::string operator()(const T& other) const {
    return ToCsvText()(other);
  }
};

size_t WidthOf(const Table::Column& column) { return std::max(column.width, column.title.size()); }

std::string Cell(const std::string& text, const Table::Column& column) {
  const size_t width = WidthOf(column);
  const std::string blanks(width > text.size() ? width - text.size() : 0, ' ');
  return (column.align == Table::Column::Align::kLeft ? text + blanks : blanks + text) + " ";
}

std::string Centred(const std::string& text, size_t width) {
  if (text.size() >= width) return text;
  const size_t before = (width - text.size()) / 2;
  return absl::StrCat(std::string(before, ' '), text, std::string(width - text.size() - before, ' '));
}

// Returns `text` as a line, without trailing blanks.
std::string Line(std::string text) {
  text.erase(text.find_last_not_of(' ') + 1);
  return text + "\n";
}

}  // namespace

std::string Table::GroupLine() const {
  std::string line = "#";
  for (size_t i = 0; i < columns_.size();) {
    size_t width = 0;
    size_t end = i;
    for (; end < columns_.size() && columns_[end].group == columns_[i].group; ++end)
      width += WidthOf(columns_[end]) + 1;
    absl::StrAppend(&line, Centred(columns_[i].group, width));
    i = end;
  }
  return Line(std::move(line));
}

std::string Table::Header() const {
  bool has_groups = false;
  std::string titles = "#";
  for (const Column& column : columns_) {
    has_groups = has_groups || !column.group.empty();
    absl::StrAppend(&titles, Cell(column.title, column));
  }
  return (has_groups ? GroupLine() : std::string()) + Line(std::move(titles));
}

std::string Table::Row(const std::vector<std::string>& cells) const {
  std::string line = " ";
  for (size_t i = 0; i < columns_.size(); ++i) absl::StrAppend(&line, Cell(cells[i], columns_[i]));
  return Line(std::move(line));
}

std::string Table::RowOf(const ResultRow& row) const {
  std::vector<std::string> cells;
  for (const Column& column : columns_) cells.push_back(FieldText(row, column.field, ToCellText{column.digits}));
  return Row(cells);
}

std::string Fixed(double number, int digits) { return absl::StrFormat("%.*f", digits, number); }

std::string Short(double number) {
  constexpr double kLeastWithExponent = 1e6;
  const bool is_whole = std::abs(number) >= 1000 && std::abs(number) < kLeastWithExponent;
  return is_whole ? Fixed(number, 0) : absl::StrFormat("%.3g", number);
}

std::string EncodeRow(const ResultRow& row) { return Compact(JsonOf(row)); }

absl::StatusOr<ResultRow> DecodeRow(const std::string& line) {
  try {
    const Json json = Json::parse(line);
    ResultRow row;
    for (const auto& [name, value] : json.get_ref<const Json::object_t&>()) row.emplace_back(name, ValueOf(value));
    return row;
  } catch (const Json::exception&) {
    return absl::InvalidArgumentError(absl::StrCat("\"", line, "\" is not a row of results"));
  }
}

void Results::AddPeer(const std::string& description) {
  if (std::find(peers_.begin(), peers_.end(), description) == peers_.end()) peers_.push_back(description);
}

std::string Results::ToJson(const Machine& machine, const std::string& date) const {
  const Json head = {{"tool", "ronda-bench"},
                     {"version", kVersion},
                     {"command", command_},
                     {"date", date},
                     {"machine",
                      {{"cpu", machine.cpu},
                       {"cores", machine.cores},
                       {"memory_gib", machine.memory_gib},
                       {"kernel", machine.kernel}}},
                     {"peers", peers_},
                     {"core_distance_ns", core_distance_},
                     {"busy_cores", busy_cores_},
                     {"arguments", arguments_}};
  std::string text = Compact(head);
  text.pop_back();  // the brace, to put each row on its own line
  const auto append = [](std::string* out, const ResultRow& row) { out->append(EncodeRow(row)); };
  return absl::StrCat(text, ",\"rows\":[\n", absl::StrJoin(rows_, ",\n", append), "\n]}\n");
}

std::string Results::ToCsv() const {
  const std::vector<std::string> columns = ColumnNames(rows_);
  std::string text = absl::StrJoin(columns, ",") + "\n";
  for (const ResultRow& row : rows_) {
    const auto append_cell = [&](std::string* out, const std::string& column) {
      out->append(FieldText(row, column, ToCsvText()));
    };
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
