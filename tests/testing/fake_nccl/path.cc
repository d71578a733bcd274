// SPDX-License-Identifier: Apache-2.0

#include "tests/testing/fake_nccl/path.h"

#include "absl/strings/str_cat.h"

namespace ronda::testing {
namespace {

using Kind = NcclOperation::Kind;

constexpr int kBufferBits = 28;
constexpr int kInputShift = 8;
constexpr int kOutputShift = kInputShift + kBufferBits;

constexpr uint64_t kKinds = 4;
constexpr uint64_t kWindows = 16;
constexpr uint64_t kOffsets = (uint64_t{1} << kBufferBits) / kKinds / kWindows;

// Offsets are encoded modulo 4 MiB, and windows modulo 16. Unregistered memory has no offset.
uint64_t EncodeBuffer(const NcclPath::Buffer& buffer) {
  if (buffer.kind == NcclPath::Buffer::Kind::kUnregistered) return 0;
  return static_cast<uint64_t>(buffer.kind) +
         kKinds * (buffer.window % kWindows + kWindows * (buffer.offset % kOffsets));
}

std::string BufferText(uint64_t buffer) {
  const auto kind = static_cast<NcclPath::Buffer::Kind>(buffer % kKinds);
  const uint64_t window = buffer / kKinds % kWindows;
  const uint64_t offset = buffer / kKinds / kWindows % kOffsets;
  if (kind == NcclPath::Buffer::Kind::kUnregistered) return "memory that is not registered";
  if (kind == NcclPath::Buffer::Kind::kRegistered) return absl::StrCat("registered memory at ", offset);
  return absl::StrCat("window ", window, " at ", offset);
}

}  // namespace

uint64_t NcclPath::Encode() const {
  Kind written = kind;
  Buffer from = input;
  Buffer to = output;
  // The sender's and the receiver's offsets may differ, so they are not encoded.
  if (kind == Kind::kRecv) {
    written = Kind::kSend;
    from = {.kind = output.kind, .window = output.window};
    to = {};
  }
  if (kind == Kind::kSend) from.offset = 0;
  return static_cast<uint64_t>(written) | EncodeBuffer(from) << kInputShift | EncodeBuffer(to) << kOutputShift;
}

const char* NameOf(Kind kind) {
  constexpr const char* kNames[] = {"AllReduce", "Broadcast", "AllGather", "ReduceScatter", "Send", "Recv", "Reduce"};
  return kNames[static_cast<int>(kind)];
}

std::string PathText(uint64_t path) {
  constexpr uint64_t kBuffer = (uint64_t{1} << kBufferBits) - 1;
  const auto kind = static_cast<Kind>(path & 0xff);
  const std::string input = BufferText(path >> kInputShift & kBuffer);
  if (kind == Kind::kSend) return absl::StrCat("Send or Recv with ", input);
  return absl::StrCat(NameOf(kind), " from ", input, " to ", BufferText(path >> kOutputShift));
}

}  // namespace ronda::testing
