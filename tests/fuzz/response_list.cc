// SPDX-License-Identifier: Apache-2.0

// Tests how a rank decodes and applies the coordinator's response list.
#include "runtime/negotiation/messages.h"
#include "runtime/negotiation/reporter.h"
#include "tests/fuzz/fuzz_input.h"

// The decoder accepts as many ids, which limits the memory that it uses.
constexpr size_t kCacheCapacity = size_t{1} << 18;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using ronda::fuzz::Require;
  const auto list = ronda::DecodeResponseList({reinterpret_cast<const char*>(data), size}, kCacheCapacity);
  ronda::fuzz::RequireOkOrRefused(list.status());
  if (!list.ok()) return 0;
  const std::string encoded = Encode(*list);
  const auto again = ronda::DecodeResponseList(encoded, kCacheCapacity);
  Require(again.ok(), "a decoded list can be encoded and decoded again");
  Require(Encode(*again) == encoded, "decoding loses nothing");

  ronda::Reporter reporter({.rank = 1, .world_size = 3});
  ronda::fuzz::RequireOkOrRefused(reporter.Apply(*list).status());
  return 0;
}
