#include "bench/table.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace ronda::bench {
namespace {

constexpr size_t kGap = 1;  // columns between two cells

std::string Padded(const std::string& text, size_t width, Table::Column::Align align) {
  const std::string blanks(width > text.size() ? width - text.size() : 0, ' ');
  return align == Table::Column::Align::kLeft ? text + blanks : blanks + text;
}

// Without blanks at its end.
std::string Line(std::string text) {
  text.erase(text.find_last_not_of(' ') + 1);
  return text + "\n";
}

std::string Centred(const std::string& text, size_t width) {
  if (text.size() >= width) return text;
  const size_t before = (width - text.size()) / 2;
  return absl::StrCat(std::string(before, ' '), text, std::string(width - text.size() - before, ' '));
}

}  // namespace

size_t Table::WidthOf(const Column& column) const { return std::max(column.width, column.title.size()); }

std::string Table::GroupLine() const {
  std::string line = "#";
  for (size_t i = 0; i < columns_.size();) {
    size_t width = 0;
    size_t end = i;
    for (; end < columns_.size() && columns_[end].group == columns_[i].group; ++end) {
      width += WidthOf(columns_[end]) + kGap;
    }
    absl::StrAppend(&line, Centred(columns_[i].group, width));
    i = end;
  }
  return Line(std::move(line));
}

std::string Table::Header() const {
  const bool has_groups =
      std::any_of(columns_.begin(), columns_.end(), [](const Column& column) { return !column.group.empty(); });
  std::string titles = "#";
  for (const Column& column : columns_) {
    absl::StrAppend(&titles, Padded(column.title, WidthOf(column), column.align), std::string(kGap, ' '));
  }
  return (has_groups ? GroupLine() : std::string()) + Line(std::move(titles));
}

std::string Table::Row(const std::vector<std::string>& cells) const {
  std::string line = " ";
  for (size_t i = 0; i < columns_.size(); ++i) {
    absl::StrAppend(&line, Padded(cells[i], WidthOf(columns_[i]), columns_[i].align), std::string(kGap, ' '));
  }
  return Line(std::move(line));
}

std::string Fixed(double number, int digits) { return absl::StrFormat("%.*f", digits, number); }

}  // namespace ronda::bench
