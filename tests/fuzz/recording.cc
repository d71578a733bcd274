// SPDX-License-Identifier: Apache-2.0

// Tests the replay of a file with a recorded negotiation.
#include "runtime/negotiation/recording.h"

#include "tests/fuzz/fuzz_input.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto recording = ronda::DecodeRecording({reinterpret_cast<const char*>(data), size});
  ronda::fuzz::RequireOkOrRefused(recording.status());
  // Limits the number of ranks, because a job with very many ranks uses much memory before its first report.
  constexpr int kMostRanks = 64;
  if (!recording.ok() || recording->options.world_size > kMostRanks) return 0;
  const absl::Status replayed = ronda::Replay(*recording);
  if (replayed.code() != absl::StatusCode::kInternal) ronda::fuzz::RequireOkOrRefused(replayed);
  return 0;
}
