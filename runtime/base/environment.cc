// SPDX-License-Identifier: Apache-2.0

#include "runtime/base/environment.h"

#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <limits>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "runtime/base/nearest_name.h"
#include "runtime/base/status_macros.h"

namespace ronda {
namespace {

// Errors show at most this many characters of a bad value, so that the value does not bury the message.
constexpr size_t kShownValueLength = 80;

struct ByteUnit {
  absl::string_view suffix;
  int64_t bytes;
};

constexpr ByteUnit kByteUnits[] = {{"KiB", int64_t{1} << 10}, {"MiB", int64_t{1} << 20}, {"GiB", int64_t{1} << 30}};

std::optional<int64_t> ParseBytes(absl::string_view text) {
  int64_t unit = 1;
  for (const ByteUnit& candidate : kByteUnits) {
    if (absl::ConsumeSuffix(&text, candidate.suffix)) {
      unit = candidate.bytes;
      break;
    }
  }
  int64_t count = 0;
  if (!absl::SimpleAtoi(text, &count) || count < 0) return std::nullopt;
  if (count > std::numeric_limits<int64_t>::max() / unit) return std::nullopt;
  return count * unit;
}

}  // namespace

EnvironmentReader ProcessEnvironment() {
  return [](const char* name) -> std::optional<std::string> {
    const char* const value = std::getenv(name);
    if (value == nullptr) return std::nullopt;
    return value;
  };
}

std::vector<std::string> ProcessVariables() {
  std::vector<std::string> variables;
  for (char** variable = environ; *variable != nullptr; ++variable) variables.emplace_back(*variable);
  return variables;
}

std::vector<std::string> DescribeUnknownVariables(const std::vector<std::string>& variables) {
  // Names are compared without the prefix, which they all share.
  std::vector<absl::string_view> known;
  for (const absl::string_view name : kVariables) known.push_back(absl::StripPrefix(name, kVariablePrefix));
  std::vector<std::string> messages;
  for (const std::string& variable : variables) {
    const std::pair<absl::string_view, absl::string_view> parts = absl::StrSplit(variable, absl::MaxSplits('=', 1));
    if (IsKnownVariable(parts.first)) continue;
    const absl::string_view nearest = NearestName(absl::StripPrefix(parts.first, kVariablePrefix), known);
    messages.push_back(absl::StrCat(
        "the environment sets ", parts.first, ", which is no variable of Ronda's and has no effect",
        nearest.empty() ? "; see docs/configuration.md" : absl::StrCat("; is it ", kVariablePrefix, nearest, "?")));
  }
  return messages;
}

bool ParseDurationOrSeconds(absl::string_view text, absl::Duration* duration) {
  if (absl::ParseDuration(text, duration)) return true;
  double seconds = 0;
  if (!absl::SimpleAtod(text, &seconds) || !std::isfinite(seconds)) return false;
  *duration = absl::Seconds(seconds);
  return true;
}

absl::Status InvalidVariable(absl::string_view name, absl::string_view value, absl::string_view expectation) {
  const absl::string_view ellipsis = value.size() > kShownValueLength ? "..." : "";
  const std::string shown = absl::CHexEscape(value.substr(0, kShownValueLength));
  return absl::InvalidArgumentError(absl::StrCat(name, "=\"", shown, ellipsis, "\": should be ", expectation));
}

absl::Status EnvironmentVariables::ReadInteger(VariableName name, IntegerRange range, int64_t* value) const {
  const std::optional<std::string> text = Get(name);
  if (!text) return absl::OkStatus();
  int64_t parsed = 0;
  if (!absl::SimpleAtoi(*text, &parsed) || parsed < range.min || parsed > range.max) {
    return InvalidVariable(name.view(), *text, absl::StrCat("an integer from ", range.min, " to ", range.max));
  }
  *value = parsed;
  return absl::OkStatus();
}

absl::Status EnvironmentVariables::ReadInteger(VariableName name, IntegerRange range, std::optional<int>* value) const {
  if (!IsSet(name)) return absl::OkStatus();
  int64_t parsed = 0;
  RONDA_RETURN_IF_ERROR(ReadInteger(name, range, &parsed));
  *value = static_cast<int>(parsed);
  return absl::OkStatus();
}

absl::Status EnvironmentVariables::ReadSwitch(VariableName name, std::optional<bool>* value) const {
  const std::optional<std::string> text = Get(name);
  if (!text) return absl::OkStatus();
  if (*text != "0" && *text != "1") return InvalidVariable(name.view(), *text, "0 or 1");
  *value = *text == "1";
  return absl::OkStatus();
}

absl::Status EnvironmentVariables::ReadText(VariableName name, absl::string_view expectation,
                                            std::string* value) const {
  const std::optional<std::string> text = Get(name);
  if (!text) return absl::OkStatus();
  if (text->empty()) return InvalidVariable(name.view(), *text, expectation);
  *value = *text;
  return absl::OkStatus();
}

absl::Status EnvironmentVariables::ReadBytes(VariableName name, size_t* value) const {
  const std::optional<std::string> text = Get(name);
  if (!text) return absl::OkStatus();
  const std::optional<int64_t> bytes = ParseBytes(*text);
  if (!bytes) return InvalidVariable(name.view(), *text, "a number of bytes, such as 67108864, 65536KiB or 64MiB");
  *value = static_cast<size_t>(*bytes);
  return absl::OkStatus();
}

absl::Status EnvironmentVariables::ReadDuration(VariableName name, const DurationRange& range,
                                                absl::Duration* value) const {
  const std::optional<std::string> text = Get(name);
  if (!text) return absl::OkStatus();
  absl::Duration parsed;
  const bool is_duration = range.plain_number == DurationRange::PlainNumber::kSeconds
                               ? ParseDurationOrSeconds(*text, &parsed)
                               : absl::ParseDuration(*text, &parsed);
  if (!is_duration || parsed < range.min || parsed > range.max) {
    return InvalidVariable(name.view(), *text, range.expectation);
  }
  *value = parsed;
  return absl::OkStatus();
}

}  // namespace ronda
