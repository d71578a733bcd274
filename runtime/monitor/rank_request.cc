// SPDX-License-Identifier: Apache-2.0

#include "runtime/monitor/rank_request.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "runtime/monitor/flight_recorder.h"

namespace ronda {
namespace {

template <size_t n>
void Store(absl::string_view text, std::atomic<char> (&to)[n]) {
  const absl::string_view shortened = ShortName(text, n - 1);
  for (size_t i = 0; i < shortened.size(); ++i) to[i].store(shortened[i], std::memory_order_release);
  to[shortened.size()].store('\0', std::memory_order_release);
}

template <size_t n>
std::string Load(const std::atomic<char> (&from)[n]) {
  std::string text;
  for (const std::atomic<char>& place : from) {
    const char c = place.load(std::memory_order_acquire);
    if (c == '\0') break;
    text += c;
  }
  return text;
}

// Checks a file path, which must be absolute so that it means the same file in every process.
absl::Status CheckPath(absl::string_view path) {
  const auto is_control = [](unsigned char c) { return c < ' ' || c == 0x7f; };
  if (path.size() >= RankRequestWords::kPathBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("the path of a timeline has ", RankRequestWords::kPathBytes - 1, " bytes at most: ", path));
  }
  if (path.empty() || path[0] != '/') {
    return absl::InvalidArgumentError(absl::StrCat("the path of a timeline begins with '/'; got '", path, "'"));
  }
  if (std::any_of(path.begin(), path.end(), is_control)) {
    return absl::InvalidArgumentError("the path of a timeline has no control characters");
  }
  return absl::OkStatus();
}

absl::StatusOr<TimelineRequest> Decode(uint64_t kind, std::string path) {
  using Kind = TimelineRequest::Kind;
  if (kind == static_cast<uint64_t>(Kind::kStop)) return TimelineRequest{.kind = Kind::kStop};
  if (kind != static_cast<uint64_t>(Kind::kStart)) {
    return absl::InvalidArgumentError(absl::StrCat("this rank's library knows no request ", kind));
  }
  if (const absl::Status status = CheckPath(path); !status.ok()) return status;
  return TimelineRequest{.kind = Kind::kStart, .path = std::move(path)};
}

}  // namespace

absl::StatusOr<uint64_t> Ask(const TimelineRequest& request, RankRequestWords* words) {
  if (request.kind == TimelineRequest::Kind::kStart) {
    if (absl::Status status = CheckPath(request.path); !status.ok()) return status;
  }
  // The new number exceeds those of the last request and the last answer. So the numbers always increase, even if an
  // earlier rondactl died while it was writing a request.
  const uint64_t last =
      std::max(words->number.load(std::memory_order_acquire), words->answered.load(std::memory_order_acquire));
  const uint64_t number = last + 1 == 0 ? 1 : last + 1;
  words->number.store(0, std::memory_order_release);
  words->kind.store(static_cast<uint64_t>(request.kind), std::memory_order_release);
  Store(request.path, words->path);
  words->number.store(number, std::memory_order_release);
  return number;
}

std::optional<absl::StatusOr<std::string>> AnswerTo(uint64_t number, const RankRequestWords& words) {
  if (words.answered.load(std::memory_order_acquire) != number) return std::nullopt;
  const auto code = static_cast<absl::StatusCode>(words.code.load(std::memory_order_acquire));
  std::string text = Load(words.text);
  if (words.answered.load(std::memory_order_acquire) != number) return std::nullopt;
  if (code == absl::StatusCode::kOk) return text;
  return absl::Status(code, text);
}

void AnswerRequest(absl::FunctionRef<absl::StatusOr<std::string>(const TimelineRequest&)> carry_out,
                   RankRequestWords* words) {
  if (!HasRequest(*words)) return;
  const uint64_t number = words->number.load(std::memory_order_acquire);
  const uint64_t kind = words->kind.load(std::memory_order_acquire);
  std::string path = Load(words->path);
  if (number == 0 || words->number.load(std::memory_order_acquire) != number) return;
  const absl::StatusOr<TimelineRequest> request = Decode(kind, std::move(path));
  const absl::StatusOr<std::string> answer = request.ok() ? carry_out(*request) : request.status();
  words->answered.store(0, std::memory_order_release);
  words->code.store(static_cast<uint64_t>(answer.status().code()), std::memory_order_release);
  Store(answer.ok() ? absl::string_view(*answer) : answer.status().message(), words->text);
  words->answered.store(number, std::memory_order_release);
}

}  // namespace ronda
