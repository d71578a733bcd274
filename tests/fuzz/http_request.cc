// SPDX-License-Identifier: Apache-2.0

// Tests arbitrary requests to the monitor. Only a request with the token and the right host name may get the page.
#include "programs/monitor/serve/http.h"

#include <optional>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "tests/fuzz/fuzz_input.h"
#include "tests/programs/monitor/serve/memory_byte_stream.h"

namespace ronda {
namespace {

constexpr char kToken[] = "correct-horse-battery";
constexpr char kBody[] = "the page itself";

void AnswerBytes(absl::string_view request, size_t piece) {
  static const auto* const site = new HttpSite(Access(kToken, {"localhost"}), [](absl::string_view path) {
    fuzz::Require(absl::StartsWith(path, "/") || !path.empty(), "a page is asked for by a path");
    return path == "/" ? std::optional(Page{.type = "text/plain", .body = kBody}) : std::nullopt;
  });
  testing::MemoryByteStream stream(request, piece);
  site->Answer(&stream);
  fuzz::Require(request.size() - stream.unread() <= HttpSite::kMostRequestBytes, "requests are within their bounds");
  const bool has_page = absl::StrContains(stream.written(), kBody);
  const std::string lower = absl::AsciiStrToLower(request);
  const bool may_have = absl::StrContains(lower, "localhost") && absl::StrContains(lower, "authorization");
  fuzz::Require(!has_page || may_have, "the page is for those who have the token");
  // A request that gets the page has the token, either as plain text or in base64 (Basic).
  const bool has_token = absl::StrContains(request, kToken) || absl::StrContains(lower, "basic");
  fuzz::Require(!has_page || has_token, "the token is needed");
}

}  // namespace
}  // namespace ronda

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  ronda::fuzz::FuzzInput input(data, size);
  const size_t piece = input.Number<uint16_t>() % 4096 + size_t{1};
  const absl::string_view request = input.TakeRest();
  ronda::AnswerBytes(request, piece);
  // Tests the two parsers that are Ronda's own code.
  const auto name = ronda::NameInHost(request);
  ronda::fuzz::Require(!name || (!name->empty() && name->size() <= request.size()), "a name is part of the header");
  const auto token = ronda::TokenInAuthorization(request);
  ronda::fuzz::Require(!token || token->size() < request.size(), "a token is part of the header");
  return 0;
}
