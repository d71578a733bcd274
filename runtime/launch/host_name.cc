#include "runtime/launch/host_name.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/strip.h"

namespace ronda {

bool IsHostName(absl::string_view host) {
  return !host.empty() && host.front() != '-' && std::all_of(host.begin(), host.end(), [](unsigned char c) {
    return absl::ascii_isalnum(c) || c == '-' || c == '_' || c == '.' || c == ':' || c == '%';
  });
}

std::optional<std::pair<absl::string_view, absl::string_view>> SplitHost(absl::string_view text) {
  const size_t colon = text.rfind(':');
  if (colon == absl::string_view::npos) return std::nullopt;
  absl::string_view host = text.substr(0, colon);
  if (absl::ConsumePrefix(&host, "[")) {
    if (!absl::ConsumeSuffix(&host, "]")) return std::nullopt;
  } else if (absl::StrContains(host, ':')) {
    return std::nullopt;
  }
  if (!IsHostName(host)) return std::nullopt;
  return std::make_pair(host, text.substr(colon + 1));
}

}  // namespace ronda
