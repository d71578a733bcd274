// SPDX-License-Identifier: Apache-2.0

// Tests arbitrary requests to the monitor. Only a request with the token and the right host name may get the page.
#include "programs/monitor/serve/http.h"

#include <optional>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_replace.h"
#include "tests/fuzz/fuzz_input.h"
#include "tests/programs/monitor/serve/memory_byte_stream.h"

namespace ronda {
namespace {

constexpr char kToken[] = "correct-horse-battery";
constexpr char kBody[] = "the page itself";

// Returns whether the request has the token, either as plain text or in base64 after "Basic".
bool HasToken(absl::string_view request) {
  if (absl::StrContains(request, kToken)) return true;
  constexpr absl::string_view kBasic = "basic";
  // A header may continue on a line that begins with a blank.
  const std::string text = absl::StrReplaceAll(request, {{"\r\n ", " "}, {"\r\n\t", " "}});
  const std::string lowered = absl::AsciiStrToLower(text);
  const absl::string_view lower = lowered;
  for (size_t at = lower.find(kBasic); at != absl::string_view::npos; at = lower.find(kBasic, at + 1)) {
    const size_t begin = at + kBasic.size();
    std::string decoded;
    const absl::string_view rest = absl::string_view(text).substr(begin, text.find('\r', begin) - begin);
    if (absl::Base64Unescape(rest, &decoded) && absl::StrContains(decoded, kToken)) return true;
  }
  return false;
}

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
  fuzz::Require(!has_page || HasToken(request), "the token is needed");
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
