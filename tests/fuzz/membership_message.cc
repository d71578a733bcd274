// SPDX-License-Identifier: Apache-2.0

// Tests the messages between the members of an elastic job and the launcher. Each message must either be refused, or
// stay the same when it is encoded and decoded again.
#include "runtime/elastic/membership_message.h"

#include "absl/strings/string_view.h"
#include "tests/fuzz/fuzz_input.h"

namespace {

template <typename Decode>
void RequireSameAgain(absl::string_view text, Decode decode) {
  const auto message = decode(text);
  ronda::fuzz::RequireOkOrRefused(message.status());
  if (!message.ok()) return;
  const std::string encoded = ronda::Encode(*message);
  ronda::fuzz::Require(encoded.size() <= ronda::kMaxMembershipMessage, "an encoded message fits");
  const auto again = decode(encoded);
  ronda::fuzz::Require(again.ok() && ronda::Encode(*again) == encoded, "an encoded message can be decoded");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::string_view text(reinterpret_cast<const char*>(data), size);
  RequireSameAgain(text, ronda::DecodeMemberMessage);
  RequireSameAgain(text, ronda::DecodeLauncherMessage);
  return 0;
}
