// SPDX-License-Identifier: Apache-2.0

#include "runtime/control/tree/frame_stream.h"

#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace ronda {
namespace {

FrameBytes Frame(std::string bytes) { return std::make_shared<const std::string>(std::move(bytes)); }

std::vector<std::string> TakeAll(FrameAssembler& assembler) {
  std::vector<std::string> frames;
  std::string frame;
  while (*assembler.Next(&frame)) frames.push_back(frame);
  return frames;
}

TEST(FrameStreamTest, FramesOfAnyLengthComeOutAsTheyWentIn) {
  const std::vector<size_t> lengths = {0,
                                       1,
                                       3,
                                       0,
                                       kControlPieceBytes - 5,
                                       kControlPieceBytes,
                                       7,
                                       kControlPieceBytes - kFrameHeaderBytes,
                                       3 * kControlPieceBytes + 1,
                                       0,
                                       2};
  FrameQueue queue;
  std::vector<std::string> sent;
  for (const size_t length : lengths) sent.emplace_back(length, static_cast<char>('a' + sent.size()));
  for (const std::string& frame : sent) queue.Push(Frame(frame));
  FrameAssembler assembler(size_t{1} << 30);
  std::vector<std::string> received;
  for (std::string piece = queue.PopPiece(); !piece.empty(); piece = queue.PopPiece()) {
    EXPECT_LE(piece.size(), kControlPieceBytes);
    assembler.Append(piece);
    for (std::string& frame : TakeAll(assembler)) received.push_back(std::move(frame));
  }
  EXPECT_TRUE(queue.empty());
  EXPECT_TRUE(received == sent);
}

TEST(FrameStreamTest, ManyShortFramesTravelInOnePiece) {
  FrameQueue queue;
  for (int i = 0; i < 100; ++i) queue.Push(Frame("short"));
  FrameAssembler assembler(100);
  assembler.Append(queue.PopPiece());
  EXPECT_EQ(TakeAll(assembler).size(), 100U);
  EXPECT_EQ(queue.PopPiece(), "");
}

TEST(FrameStreamTest, PiecesMayBeCutAnywhere) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE(absl::StrCat("seed ", seed));
  std::mt19937 random(seed);
  FrameQueue queue;
  std::vector<std::string> sent;
  for (int i = 0; i < 200; ++i) {
    sent.emplace_back(random() % 20, static_cast<char>(random()));
    queue.Push(Frame(sent.back()));
  }
  const std::string bytes = queue.PopPiece();
  FrameAssembler assembler(20);
  std::vector<std::string> received;
  for (size_t from = 0, count = 0; from < bytes.size(); from += count) {
    count = random() % 9;
    assembler.Append(absl::string_view(bytes).substr(from, count));
    for (std::string& frame : TakeAll(assembler)) received.push_back(std::move(frame));
  }
  EXPECT_EQ(received, sent);
}

TEST(FrameStreamTest, FrameThatIsTooLongIsRefusedBeforeItHasCome) {
  FrameQueue queue;
  queue.Push(Frame(std::string(11, 'x')));
  FrameAssembler assembler(10);
  assembler.Append(queue.PopPiece().substr(0, kFrameHeaderBytes));
  std::string frame;
  const absl::Status refused = assembler.Next(&frame).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(absl::StrContains(refused.message(), "a message of 11 bytes; should be at most 10")) << refused;
}

TEST(FrameStreamTest, FramesThatHaveNotBegunCanBeDropped) {
  FrameQueue queue;
  queue.Push(Frame(std::string(2 * kControlPieceBytes, 'a')));
  queue.Push(Frame("b"));
  const std::string first = queue.PopPiece();
  queue.DropUnbegun();
  queue.Push(Frame("c"));
  FrameAssembler assembler(size_t{1} << 30);
  assembler.Append(first);
  for (std::string piece = queue.PopPiece(); !piece.empty(); piece = queue.PopPiece()) assembler.Append(piece);
  const std::vector<std::string> frames = TakeAll(assembler);
  ASSERT_EQ(frames.size(), 2U);
  EXPECT_EQ(frames[0].size(), 2 * kControlPieceBytes);
  EXPECT_EQ(frames[1], "c");

  queue.Push(Frame("d"));
  queue.DropUnbegun();
  EXPECT_TRUE(queue.empty());
}

}  // namespace
}  // namespace ronda
