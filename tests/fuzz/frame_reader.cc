// SPDX-License-Identifier: Apache-2.0

// Tests both ends of a control ring in shared memory to which another process also writes.
#include <memory>
#include <string>

#include "runtime/control/shm/shm_control_plane.h"
#include "tests/fuzz/fuzz_input.h"

namespace {

struct Ring {
  ronda::ShmRingHeader header;
  char data[ronda::kShmRingBytes];
};

void RequireOkOrDamaged(const absl::Status& status) {
  ronda::fuzz::Require(status.ok() || status.code() == absl::StatusCode::kInternal, status.ToString().c_str());
}

enum Step { kSend, kRead, kPutBytes, kSetWritten, kSetRead, kSetBlocked, kStepCount };

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  ronda::fuzz::FuzzInput input(data, size);
  const auto ring = std::make_unique<Ring>();
  ronda::FrameWriter writer(&ring->header);
  ronda::FrameReader reader(&ring->header);
  while (!input.empty()) {
    switch (input.Below(kStepCount)) {
      case kSend: {
        const auto bytes = input.Number<uint16_t>();
        ronda::fuzz::Require(writer.Queue(std::string(bytes, 'x')).ok(), "a message can be queued");
        RequireOkOrDamaged(writer.Flush().status());
        break;
      }
      case kRead: {
        const auto read = reader.Read();
        RequireOkOrDamaged(read.status());
        if (!read.ok()) return 0;  // the job has failed
        break;
      }
      case kPutBytes: {
        const size_t at = input.Number<uint16_t>();
        const absl::string_view bytes = input.Text();
        std::memcpy(ring->data + at, bytes.data(), std::min(bytes.size(), sizeof(ring->data) - at));
        break;
      }
      case kSetWritten:
        ring->header.written = input.Number<uint64_t>();
        break;
      case kSetRead:
        ring->header.read = input.Number<uint64_t>();
        break;
      case kSetBlocked:
        ring->header.writer_is_blocked = input.Number<uint32_t>();
        break;
    }
  }
  return 0;
}
