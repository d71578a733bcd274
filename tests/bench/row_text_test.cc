#include "bench/row_text.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace ronda::bench {
namespace {

TEST(RowTextTest, ARowComesBackAsItWas) {
  const ResultRow row = {{"op", "allreduce"},
                         {"bytes", int64_t{1} << 60},
                         {"us", 0.1},
                         {"least", -std::numeric_limits<double>::denorm_min()},
                         {"most", std::numeric_limits<double>::infinity()},
                         {"rounds_us", std::vector<double>{1, 2.25, 1.0 / 3}},
                         {"none", std::vector<double>{}},
                         {"nothing", ""}};
  const absl::StatusOr<ResultRow> read = DecodeRow(EncodeRow(row));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(*read, row);
}

TEST(RowTextTest, NoTextBreaksTheLine) {
  const ResultRow row = {{"preset", "a\ttab=a\nline, a \\ and \xc3\xa9"}, {"after", int64_t{1}}};
  const std::string line = EncodeRow(row);
  EXPECT_EQ(line.find('\n'), std::string::npos) << line;
  const absl::StatusOr<ResultRow> read = DecodeRow(line);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(*read, row);
}

TEST(RowTextTest, WhatIsNoNumberStaysNone) {
  const absl::StatusOr<ResultRow> read = DecodeRow(EncodeRow({{"ratio", std::nan("")}}));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_TRUE(std::isnan(std::get<double>(read->front().second)));
}

TEST(RowTextTest, AnEmptyRowIsALineToo) { EXPECT_EQ(*DecodeRow(EncodeRow({})), ResultRow()); }

TEST(RowTextTest, AFieldThatCannotBeReadIsQuoted) {
  for (const std::string field : {"us", "us=", "us=x1", "us=dfast", "us=i1.5", "us=l1,two", "us=s\\q"}) {
    const absl::StatusOr<ResultRow> read = DecodeRow("bytes=i4\t" + field);
    ASSERT_FALSE(read.ok()) << field;
    EXPECT_EQ(read.status().message(), "\"" + field + "\" is no field of a result");
  }
}

}  // namespace
}  // namespace ronda::bench
