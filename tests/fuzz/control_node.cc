// SPDX-License-Identifier: Apache-2.0

// Tests a rank of the control plane between hosts. The input has the bytes that its neighbours send, and other events.
#include "runtime/control/tree/control_node.h"

#include "tests/fuzz/fuzz_input.h"

namespace ronda::fuzz {
namespace {

constexpr int kSize = 7;

// Rank 1 of a binary tree, between rank 0 and ranks 3 and 4.
constexpr RankId kNeighbours[] = {0, 3, 4};

ControlNode MakeNode() {
  ControlNode::Options options = {
      .rank = 1, .tree = {.size = kSize, .fan_out = 2}, .flights = std::make_shared<FlightBoard>(kSize)};
  for (RankId rank = 0; rank < kSize; ++rank) options.peers.push_back({.rank = rank, .host = "node", .pid = 42});
  options.peers[1].host = "here";
  return ControlNode(std::move(options));
}

// Passes bytes that have arrived from rank `from` to the node. The input determines how the stream is split.
void ReceiveBytes(ControlNode& node, RankId from, FrameAssembler& assembler, absl::string_view bytes,
                  absl::Duration now) {
  assembler.Append(bytes);
  std::string frame;
  for (;;) {
    const absl::StatusOr<bool> more = assembler.Next(&frame);
    RequireOkOrRefused(more.status());
    if (!more.ok()) return node.Distrust(from, more.status());
    if (!*more) return;
    node.Receive(from, frame, now);
  }
}

void Act(ControlNode& node, FuzzInput& input) {
  switch (input.Below(5)) {
    case 0:
      return node.Send(std::string(input.Text()));
    case 1:
      return node.RequestUnlock(input.Number<uint64_t>());
    case 2:
      return node.Propose(absl::InternalError("own"));
    case 3:
      return node.AnnounceExit();
    default:
      return node.Depart();
  }
}

// Requires that the rank sends only frames that the other ranks can decode.
void CheckOutput(ControlNode& node) {
  for (const RankId neighbour : kNeighbours) {
    FrameAssembler assembler(kMaxControlFrame);
    for (std::string piece = node.PopPiece(neighbour); !piece.empty(); piece = node.PopPiece(neighbour)) {
      assembler.Append(piece);
      for (std::string frame; *assembler.Next(&frame);) {
        Require(DecodeControlFrame(frame, kSize).ok(), "outgoing bytes are a frame");
      }
    }
  }
}

void Run(FuzzInput& input) {
  ControlNode node = MakeNode();
  std::vector<FrameAssembler> streams(3, FrameAssembler(kMaxControlFrame));
  absl::Duration now = absl::Hours(1);
  for (const RankId neighbour : kNeighbours) node.Attach(neighbour, now);
  while (!input.empty()) {
    const absl::Status before = node.failure();
    const int event = input.Below(6);
    if (event < 3) ReceiveBytes(node, kNeighbours[event], streams[event], input.Text(), now);
    if (event == 3) Act(node, input);
    if (event == 4) node.Tick(now += absl::Seconds(input.Below(20)));
    if (event == 5) node.TakeInbox();
    CheckOutput(node);
    Require(before.ok() || node.failure() == before, "the first failure stays");
  }
}

}  // namespace
}  // namespace ronda::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  ronda::fuzz::FuzzInput input(data, size);
  ronda::fuzz::Run(input);
  return 0;
}
