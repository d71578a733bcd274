// SPDX-License-Identifier: Apache-2.0

// Tests how the coordinator decodes a rank's report.
#include "runtime/negotiation/messages.h"
#include "tests/fuzz/fuzz_input.h"

// The decoder accepts as many ids, which limits the memory that it uses.
constexpr size_t kCacheCapacity = size_t{1} << 18;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using ronda::fuzz::Require;
  const auto report = ronda::DecodeRankReport({reinterpret_cast<const char*>(data), size}, kCacheCapacity);
  ronda::fuzz::RequireOkOrRefused(report.status());
  if (!report.ok()) return 0;
  const std::string encoded = Encode(*report);
  const auto again = ronda::DecodeRankReport(encoded, kCacheCapacity);
  Require(again.ok(), "a decoded report can be encoded and decoded again");
  Require(Encode(*again) == encoded, "decoding loses nothing");
  return 0;
}
