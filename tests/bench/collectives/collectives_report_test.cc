#include "bench/collectives/collectives_report.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace ronda::bench {
namespace {

const CollectiveCase kCase = {.wire = WireFormat::kFloat16, .count = 250000, .ranks = 4};

std::vector<CaseOutcome> Outcomes() {
  return {{.contestant = "client", .turns = {.microseconds = {100, 110, 90}, .iterations = 7}},
          {.contestant = "gloo",
           .kind = Contestant::Kind::kPeer,
           .algorithm = "ring",
           .turns = {.microseconds = {300, 300, 300}, .iterations = 2},
           .wrong = 5}};
}

TEST(AlgorithmBandwidthTest, IsDecimalGigabytesASecond) {
  EXPECT_DOUBLE_EQ(AlgorithmBandwidth(kCase, 100), 10);
  EXPECT_EQ(AlgorithmBandwidth({.op = OpType::kBarrier, .ranks = 2}, 1), 0);
}

TEST(CollectivesReportTest, ALineHasTheColumnsOfItsHeader) {
  const CollectivesReport report({"gloo"});
  const std::string header = report.Header();
  for (const char* title : {"size", "count", "type", "redop", "time", "algbw", "busbw", "#wrong", "gloo"}) {
    EXPECT_NE(header.find(title), std::string::npos) << title << " is not in\n" << header;
  }
  const std::string lines = report.Lines(kCase, Outcomes());
  EXPECT_NE(lines.find("1000000    250000  float32   sum allreduce        in fp16 client"), std::string::npos) << lines;
  EXPECT_NE(lines.find("100.00      92.00     108.00   10.00   15.00      0    3.00\n"), std::string::npos) << lines;
  // A peer is not compared with itself, and its wire is its own.
  EXPECT_NE(lines.find("in none gloo"), std::string::npos) << lines;
  EXPECT_NE(lines.find("5.00      5\n"), std::string::npos) << lines;
}

TEST(CollectivesReportTest, RowsHoldWhatTheLinesSay) {
  const std::vector<ResultRow> rows = CollectivesReport({"gloo"}).Rows(kCase, Outcomes());
  ASSERT_EQ(rows.size(), 2u);
  const auto value_of = [&](size_t row, const std::string& name) {
    for (const auto& [field, value] : rows[row]) {
      if (field == name) return value;
    }
    return Value(std::string("absent"));
  };
  EXPECT_EQ(value_of(0, "bytes"), Value(int64_t{1000000}));
  EXPECT_EQ(value_of(0, "median_us"), Value(100.0));
  EXPECT_EQ(value_of(0, "busbw_gbs"), Value(15.0));
  EXPECT_EQ(value_of(0, "ratio_gloo"), Value(3.0));
  EXPECT_EQ(value_of(1, "ratio_gloo"), Value(std::string("absent")));
  EXPECT_EQ(value_of(1, "algorithm"), Value(std::string("ring")));
  EXPECT_EQ(value_of(1, "wrong"), Value(int64_t{5}));
}

}  // namespace
}  // namespace ronda::bench
