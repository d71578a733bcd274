#include "bench/row_text.h"

#include <cstdint>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "runtime/base/status_macros.h"

namespace ronda::bench {
namespace {

constexpr char kFieldSeparator = '\t';  // CEscape leaves none in a text

std::string Exactly(double number) { return absl::StrFormat("%.17g", number); }

struct ToText {
  std::string operator()(int64_t number) const { return absl::StrCat("i", number); }
  std::string operator()(double number) const { return "d" + Exactly(number); }
  std::string operator()(const std::string& text) const { return "s" + absl::CEscape(text); }
  std::string operator()(const std::vector<double>& numbers) const {
    const auto append = [](std::string* out, double number) { out->append(Exactly(number)); };
    return "l" + absl::StrJoin(numbers, ",", append);
  }
};

std::optional<Value> ListFrom(absl::string_view text) {
  std::vector<double> numbers;
  for (const absl::string_view word : absl::StrSplit(text, ',', absl::SkipEmpty())) {
    if (!absl::SimpleAtod(word, &numbers.emplace_back())) return std::nullopt;
  }
  return numbers;
}

std::optional<Value> ValueFrom(char kind, absl::string_view text) {
  int64_t whole = 0;
  double number = 0;
  std::string words;
  switch (kind) {
    case 'i':
      return absl::SimpleAtoi(text, &whole) ? std::optional<Value>(whole) : std::nullopt;
    case 'd':
      return absl::SimpleAtod(text, &number) ? std::optional<Value>(number) : std::nullopt;
    case 's':
      return absl::CUnescape(text, &words) ? std::optional<Value>(std::move(words)) : std::nullopt;
    case 'l':
      return ListFrom(text);
    default:
      return std::nullopt;
  }
}

absl::StatusOr<ResultRow::value_type> FieldFrom(absl::string_view text) {
  const size_t mark = text.find('=');
  if (mark != absl::string_view::npos && mark + 1 < text.size()) {
    std::optional<Value> value = ValueFrom(text[mark + 1], text.substr(mark + 2));
    if (value.has_value()) return ResultRow::value_type(text.substr(0, mark), *std::move(value));
  }
  return absl::InvalidArgumentError(absl::StrCat("\"", text, "\" is no field of a result"));
}

}  // namespace

std::string EncodeRow(const ResultRow& row) {
  return absl::StrJoin(row, std::string(1, kFieldSeparator), [](std::string* out, const ResultRow::value_type& field) {
    absl::StrAppend(out, field.first, "=", std::visit(ToText(), field.second));
  });
}

absl::StatusOr<ResultRow> DecodeRow(const std::string& line) {
  ResultRow row;
  for (const absl::string_view text : absl::StrSplit(line, kFieldSeparator, absl::SkipEmpty())) {
    RONDA_ASSIGN_OR_RETURN(row.emplace_back(), FieldFrom(text));
  }
  return row;
}

}  // namespace ronda::bench
