#include "bench/table.h"

#include <gtest/gtest.h>

namespace ronda::bench {
namespace {

using Align = Table::Column::Align;

TEST(TableTest, CellsStandUnderTheirTitles) {
  const Table table(
      {{.title = "size", .width = 6}, {.title = "by", .width = 5, .align = Align::kLeft}, {.title = "us"}});
  EXPECT_EQ(table.Header(), "#  size by    us\n");
  EXPECT_EQ(table.Row({"4", "ab", "1"}), "      4 ab     1\n");
}

TEST(TableTest, ALongCellIsNotCut) {
  const Table table({{.title = "a"}, {.title = "b"}});
  EXPECT_EQ(table.Row({"12345", "6"}), " 12345 6\n");
}

TEST(TableTest, AGroupIsPrintedOnceOverItsColumns) {
  const Table table({{.title = "n"}, {.title = "time", .group = "us"}, {.title = "p99", .width = 4, .group = "us"}});
  EXPECT_EQ(table.Header(), "#      us\n#n time  p99\n");
}

TEST(TableTest, NoLineEndsWithBlanks) {
  const Table table(
      {{.title = "a", .width = 9, .align = Align::kLeft}, {.title = "b", .width = 9, .align = Align::kLeft}});
  EXPECT_EQ(table.Row({"x", ""}), " x\n");
}

TEST(FixedTest, RoundsToDigits) {
  EXPECT_EQ(Fixed(2.345, 1), "2.3");
  EXPECT_EQ(Fixed(10, 0), "10");
}

}  // namespace
}  // namespace ronda::bench
