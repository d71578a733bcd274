// SPDX-License-Identifier: Apache-2.0

#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <string>

#include "bench/harness/output.h"
#include "runtime/base/files.h"

namespace ronda::bench {
namespace {

using Kind = OutputMessage::Kind;

TEST(OutputMessageTest, TextComesBackLineByLine) {
  EXPECT_EQ(EncodeLine({.text = "one\ntwo\n"}), "T one\nT two\n");
  const OutputMessage message = DecodeLine("T one");
  EXPECT_EQ(message.kind, Kind::kText);
  EXPECT_EQ(message.text, "one\n");
}

TEST(OutputMessageTest, ProgressKeepsItsLabel) {
  EXPECT_EQ(EncodeLine({.kind = Kind::kProgress, .text = "64 KiB, twice", .fraction = 0.25}), "P 0.25 64 KiB, twice\n");
  const OutputMessage message = DecodeLine("P 0.25 64 KiB, twice");
  EXPECT_EQ(message.kind, Kind::kProgress);
  EXPECT_EQ(message.fraction, 0.25);
  EXPECT_EQ(message.text, "64 KiB, twice");
}

TEST(OutputMessageTest, ResultsComeBack) {
  EXPECT_EQ(EncodeLine({.kind = Kind::kRow, .text = "{\"us\":1.5}"}), "R {\"us\":1.5}\n");
  const OutputMessage row = DecodeLine("R {\"us\":1.5}");
  EXPECT_EQ(row.kind, Kind::kRow);
  EXPECT_EQ(row.text, "{\"us\":1.5}");
  EXPECT_EQ(EncodeLine({.kind = Kind::kPeer, .text = "Open MPI v4.1.4"}), "V Open MPI v4.1.4\n");
  const OutputMessage peer = DecodeLine("V Open MPI v4.1.4");
  EXPECT_EQ(peer.kind, Kind::kPeer);
  EXPECT_EQ(peer.text, "Open MPI v4.1.4");
  EXPECT_EQ(EncodeLine({.kind = Kind::kDistances, .distances = {55, 57.5}}), "D 55 57.5\n");
  const OutputMessage distances = DecodeLine("D 55 57.5");
  EXPECT_EQ(distances.kind, Kind::kDistances);
  EXPECT_EQ(distances.distances[0], 55);
  EXPECT_EQ(distances.distances[1], 57.5);
}

TEST(OutputMessageTest, ALineThatIsNoMessageIsText) {
  for (const char* line : {"", "hello", "P soon", "Tight", "D 5", "D near far"}) {
    const OutputMessage message = DecodeLine(line);
    EXPECT_EQ(message.kind, Kind::kText);
    EXPECT_EQ(message.text, std::string(line) + "\n");
  }
}

// Tests Output with a file in place of the pipe.
class OutputTest : public testing::Test {
 protected:
  OutputTest() : path_(testing::TempDir() + "/output") { std::ofstream(path_).close(); }

  std::string Contents() const { return ReadFile(path_).value_or(""); }

  const std::string path_;
};

TEST_F(OutputTest, Rank0SpeaksThroughThePipe) {
  Output output(0, path_);
  output.Print("# head\n");
  output.Progress(0.5, "half");
  EXPECT_EQ(Contents(), "T # head\nP 0.5 half\n");
}

TEST_F(OutputTest, Rank0LeavesItsResultsToItsReader) {
  Output output(0, path_);
  ASSERT_TRUE(output.has_reader());
  output.Row("{}");
  output.Peer("Gloo");
  output.Distances(50, 60);
  EXPECT_EQ(Contents(), "R {}\nV Gloo\nD 50 60\n");
  EXPECT_FALSE(Output(1, path_).has_reader());
  EXPECT_FALSE(Output(0, "").has_reader());
}

TEST_F(OutputTest, OtherRanksAreSilent) {
  Output output(1, path_);
  output.Print("# head\n");
  output.Progress(0.5, "half");
  EXPECT_EQ(Contents(), "");
}

TEST_F(OutputTest, WithoutAPipeTextGoesToStdoutAndProgressNowhere) {
  testing::internal::CaptureStdout();
  Output output(0, "");
  output.Print("text\n");
  output.Progress(0.5, "half");
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "text\n");
}

TEST(ProgressLineTest, GrowsFromNothingToFull) {
  EXPECT_EQ(ProgressLine(0, "a"), "[" + std::string(30, ' ') + "]   0 %  a");
  EXPECT_EQ(ProgressLine(0.5, "b"), "[" + std::string(15, '#') + std::string(15, ' ') + "]  50 %  b");
  EXPECT_EQ(ProgressLine(7, "c"), "[" + std::string(30, '#') + "] 100 %  c");
}

TEST(ProgressBarTest, ShowsNothingOutsideATerminal) {
  std::FILE* const stream = std::tmpfile();
  ASSERT_NE(stream, nullptr);
  {
    ProgressBar bar(stream);
    bar.Show(0.5, "half");
    bar.Clear();
  }
  EXPECT_EQ(std::ftell(stream), 0);
  std::fclose(stream);
}

}  // namespace
}  // namespace ronda::bench
