// SPDX-License-Identifier: Apache-2.0

#include "tests/testing/fake_nccl/path.h"

#include "absl/strings/str_cat.h"

namespace ronda::testing {
namespace {

using Kind = NcclOperation::Kind;

constexpr int kBufferBits = 28;
constexpr int kInputShift = 8;
constexpr int kOutputShift = kInputShift + kBufferBits;

// Returns 0 for a buffer that is not registered, or for no buffer. Offsets are encoded modulo 128 MiB.
uint64_t EncodeBuffer(const NcclPath::Buffer& buffer) {
  constexpr uint64_t kOffsets = (uint64_t{1} << (kBufferBits - 1)) - 1;
  return buffer.is_registered ? 1 + 2 * (buffer.offset & kOffsets) : 0;
}

std::string BufferText(uint64_t buffer) {
  return buffer == 0 ? "memory that is not registered" : absl::StrCat("registered memory at ", buffer / 2);
}

}  // namespace

uint64_t NcclPath::Encode() const {
  Kind written = kind;
  Buffer from = input;
  Buffer to = output;
  // The sender's and the receiver's offsets may differ, so they are not encoded.
  if (kind == Kind::kRecv) {
    written = Kind::kSend;
    from = {.is_registered = output.is_registered};
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
