// SPDX-License-Identifier: Apache-2.0

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "bench/harness/results.h"
#include "nlohmann/json.hpp"
#include "runtime/base/files.h"
#include "runtime/base/version.h"

namespace ronda::bench {
namespace {

using Align = Table::Column::Align;
using Json = nlohmann::json;

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

TEST(TableTest, AColumnMayShowAFieldOfARow) {
  const Table table({{.title = "op", .width = 4, .field = "op"},
                     {.title = "bytes", .field = "bytes"},
                     {.title = "us", .width = 5, .field = "us", .digits = 1},
                     {.title = "no", .field = "absent"}});
  EXPECT_EQ(table.RowOf(ResultRow{{"us", 1.25}, {"op", "sum"}, {"bytes", int64_t{4}}}), "  sum     4   1.2\n");
}

TEST(ShortTest, HasThreeSignificantDigits) {
  EXPECT_EQ(Short(0.0012345), "0.00123");
  EXPECT_EQ(Short(12.345), "12.3");
  EXPECT_EQ(Short(12345), "12345");
  EXPECT_EQ(Short(12345678), "1.23e+07");
}

TEST(FixedTest, RoundsToDigits) {
  EXPECT_EQ(Fixed(2.345, 1), "2.3");
  EXPECT_EQ(Fixed(10, 0), "10");
}

const Machine kMachine = {.cpu = "Test \"CPU\"", .cores = 2, .memory_gib = 7.5, .kernel = "Linux 6.1"};

Results Sample() {
  Results results("example", {"-b", "4"});
  results.Add({{"op", "sum"}, {"bytes", int64_t{4}}, {"us", 1.5}});
  results.Add({{"op", "a,b"}, {"rounds", std::vector<double>{1, 2.25}}});
  return results;
}

TEST(ResultsTest, JsonHoldsTheRunAndItsRowsInOrder) {
  Results results = Sample();
  for (int rank = 0; rank < 2; ++rank) results.AddPeer("Open MPI v4.1.4");
  results.SetCoreDistance(50, 60.5);
  results.SetBusyCores(0.25, 1.5);
  const std::string json = results.ToJson(kMachine, "2026-11-21T19:30:00Z");
  EXPECT_EQ(Json::parse(json),
            Json({{"tool", "ronda-bench"},
                  {"version", kVersion},
                  {"command", "example"},
                  {"date", "2026-11-21T19:30:00Z"},
                  {"machine", {{"cpu", "Test \"CPU\""}, {"cores", 2}, {"memory_gib", 7.5}, {"kernel", "Linux 6.1"}}},
                  {"peers", Json::array({"Open MPI v4.1.4"})},
                  {"core_distance_ns", {50, 60.5}},
                  {"busy_cores", {0.25, 1.5}},
                  {"arguments", Json::array({"-b", "4"})},
                  {"rows", {{{"op", "sum"}, {"bytes", 4}, {"us", 1.5}}, {{"op", "a,b"}, {"rounds", {1, 2.25}}}}}}));
  EXPECT_NE(json.find("\"rows\":[\n{\"op\":\"sum\",\"bytes\":4,\"us\":1.5},\n"), std::string::npos) << json;
}

TEST(ResultsTest, NumbersThatAreNotFiniteAreNull) {
  Results results("example", {});
  results.Add({{"a", std::numeric_limits<double>::infinity()}, {"b", std::vector<double>{std::nan("")}}});
  EXPECT_EQ(Json::parse(results.ToJson(kMachine, "")).at("rows"), Json::parse("[{\"a\":null,\"b\":[null]}]"));
  EXPECT_EQ(results.ToCsv(), "a,b\n,\n");
}

TEST(ResultsTest, CsvHasTheColumnsOfAllRows) {
  EXPECT_EQ(Sample().ToCsv(), "op,bytes,us,rounds\nsum,4,1.5,\n\"a,b\",,,1;2.25\n");
}

TEST(ResultsTest, NoRowsAreStillADocument) {
  const Results results("example", {});
  EXPECT_TRUE(Json::parse(results.ToJson(kMachine, "now")).at("rows").empty());
}

TEST(ResultsTest, FilesAreWrittenWhereTheUserWantsThem) {
  const std::string directory = testing::TempDir();
  const Results::Files files = {.json = directory + "/results.json", .csv = directory + "/results.csv"};
  ASSERT_TRUE(Sample().Write(files).ok());
  EXPECT_EQ(Json::parse(*ReadFile(files.json)).at("rows").size(), 2u);
  EXPECT_EQ(*ReadFile(files.csv), Sample().ToCsv());
}

TEST(ResultsTest, AFileThatCannotBeWrittenIsNamed) {
  const absl::Status status = Sample().Write({.json = "/nonexistent/results.json"});
  EXPECT_EQ(status.message(), "cannot write /nonexistent/results.json: No such file or directory");
}

TEST(RowTextTest, ARowComesBackAsItWas) {
  const ResultRow row = {{"op", "allreduce"},
                         {"bytes", int64_t{1} << 60},
                         {"us", 0.1},
                         {"least", -std::numeric_limits<double>::denorm_min()},
                         {"two", 2.0},
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

TEST(RowTextTest, BytesThatAreNotUtf8AreReplaced) { EXPECT_TRUE(DecodeRow(EncodeRow({{"file", "\xff"}})).ok()); }

TEST(RowTextTest, ANumberThatIsNotFiniteComesBackAsNone) {
  const absl::StatusOr<ResultRow> read = DecodeRow(EncodeRow({{"ratio", std::numeric_limits<double>::infinity()}}));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_TRUE(std::isnan(std::get<double>(read->front().second)));
}

TEST(RowTextTest, AnEmptyRowIsALineToo) { EXPECT_EQ(*DecodeRow(EncodeRow({})), ResultRow()); }

TEST(RowTextTest, ALineThatIsNoRowIsQuoted) {
  for (const std::string line : {"", "us", "[1]", "{\"us\":", "{\"us\":{}}", "{\"us\":[\"two\"]}"}) {
    const absl::StatusOr<ResultRow> read = DecodeRow(line);
    ASSERT_FALSE(read.ok()) << line;
    EXPECT_EQ(read.status().message(), "\"" + line + "\" is not a row of results");
  }
}

}  // namespace
}  // namespace ronda::bench
