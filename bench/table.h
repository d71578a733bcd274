#ifndef RONDA_BENCH_TABLE_H_
#define RONDA_BENCH_TABLE_H_

#include <cstddef>
#include <string>
#include <vector>

namespace ronda::bench {

// A text table whose rows can be printed as they come: columns are as wide as their title or their `width`, whichever
// is more, and longer cells push the rest of their line to the right. Lines of the header begin with '#', so that
// plotting tools skip them. Immutable.
//
//   Table table({{.title = "size"}, {.title = "us", .width = 10}});
//   std::fputs(table.Header().c_str(), stdout);
//   std::fputs(table.Row({"4", "1.25"}).c_str(), stdout);
class Table {
 public:
  struct Column {
    enum class Align { kLeft, kRight };
    std::string title;
    size_t width = 0;  // of the widest cell to be expected
    Align align = Align::kRight;
    std::string group = "";  // printed once over neighbouring columns of the same group
  };

  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}

  // One line, or two if any column has a group.
  std::string Header() const;

  // REQUIRES: as many cells as columns.
  std::string Row(const std::vector<std::string>& cells) const;

  const std::vector<Column>& columns() const { return columns_; }

 private:
  size_t WidthOf(const Column& column) const;
  std::string GroupLine() const;

  const std::vector<Column> columns_;
};

// Numbers as cells: with `digits` after the point.
std::string Fixed(double number, int digits);

}  // namespace ronda::bench

#endif  // RONDA_BENCH_TABLE_H_
