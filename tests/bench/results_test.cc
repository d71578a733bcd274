#include "bench/results.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <limits>
#include <sstream>
#include <string>

#include "runtime/base/version.h"
#include "tests/bench/json_check.h"

namespace ronda::bench {
namespace {

const Machine kMachine = {.cpu = "Test \"CPU\"", .cores = 2, .memory_gib = 7.5, .kernel = "Linux 6.1"};

std::string ContentsOf(const std::string& path) {
  std::ifstream file(path);
  std::stringstream contents;
  contents << file.rdbuf();
  return contents.str();
}

Results Sample() {
  Results results("example", {"-b", "4"});
  results.Add({{"op", "sum"}, {"bytes", int64_t{4}}, {"us", 1.5}});
  results.Add({{"op", "a,b"}, {"rounds", std::vector<double>{1, 2.25}}});
  return results;
}

TEST(ResultsTest, JsonHoldsTheRunAndItsRowsInOrder) {
  Results results = Sample();
  results.SetCoreDistance(50, 60.5);
  const std::string json = results.ToJson(kMachine, "2026-11-21T19:30:00Z");
  EXPECT_EQ(json,
            std::string("{\"tool\":\"ronda-bench\",\"version\":\"") + kVersion +
                "\",\"command\":\"example\",\"date\":\"2026-11-21T19:30:00Z\",\n"
                " \"machine\":{\"cpu\":\"Test \\\"CPU\\\"\",\"cores\":2,\"memory_gib\":7.5,\"kernel\":\"Linux 6.1\"},\n"
                " \"core_distance_ns\":[50,60.5],\"arguments\":[\"-b\",\"4\"],\n"
                " \"rows\":[\n"
                "  {\"op\":\"sum\",\"bytes\":4,\"us\":1.5},\n"
                "  {\"op\":\"a,b\",\"rounds\":[1,2.25]}\n"
                " ]}\n");
  EXPECT_EQ(FindJsonError(json), "");
}

TEST(ResultsTest, NumbersThatAreNotFiniteAreNull) {
  Results results("example", {});
  results.Add({{"a", std::numeric_limits<double>::infinity()}, {"b", std::vector<double>{std::nan("")}}});
  const std::string json = results.ToJson(kMachine, "");
  EXPECT_NE(json.find("{\"a\":null,\"b\":[null]}"), std::string::npos) << json;
  EXPECT_EQ(results.ToCsv(), "a,b\n,null\n");
}

TEST(ResultsTest, CsvHasTheColumnsOfAllRows) {
  EXPECT_EQ(Sample().ToCsv(), "op,bytes,us,rounds\nsum,4,1.5,\n\"a,b\",,,1;2.25\n");
}

TEST(ResultsTest, NoRowsAreStillADocument) {
  const Results results("example", {});
  EXPECT_EQ(FindJsonError(results.ToJson(kMachine, "now")), "");
}

TEST(ResultsTest, FilesAreWrittenWhereTheUserWantsThem) {
  const std::string directory = testing::TempDir();
  const Results::Files files = {.json = directory + "/results.json", .csv = directory + "/results.csv"};
  ASSERT_TRUE(Sample().Write(files).ok());
  EXPECT_EQ(FindJsonError(ContentsOf(files.json)), "");
  EXPECT_EQ(ContentsOf(files.csv), Sample().ToCsv());
}

TEST(ResultsTest, AFileThatCannotBeWrittenIsNamed) {
  const absl::Status status = Sample().Write({.json = "/nonexistent/results.json"});
  EXPECT_EQ(status.message(), "cannot write /nonexistent/results.json: No such file or directory");
}

TEST(JsonStringTest, EscapesWhatJsonReserves) {
  EXPECT_EQ(JsonString("a\"b\\c\n\x01"), "\"a\\\"b\\\\c\\u000a\\u0001\"");
  EXPECT_EQ(JsonString("\xc3\xa9"), "\"\xc3\xa9\"");
}

}  // namespace
}  // namespace ronda::bench
