#include "runtime/launch/start_mark.h"

#include <cstddef>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"

namespace ronda {
namespace {

constexpr absl::string_view kLabel = "ronda-start ";

// A pid has fewer digits.
constexpr size_t kMaxLength = kLabel.size() + 12;

// Whether more bytes can make a mark of `text`, which has no newline.
bool MayBecomeMark(absl::string_view text) {
  return text.size() <= kMaxLength && text.substr(0, kLabel.size()) == kLabel.substr(0, text.size());
}

// Of a line without its newline.
std::optional<pid_t> ReadMark(absl::string_view line) {
  pid_t pid = 0;
  if (!absl::StartsWith(line, kLabel) || !absl::SimpleAtoi(line.substr(kLabel.size()), &pid)) return std::nullopt;
  return pid;
}

}  // namespace

std::vector<std::string> WithStartMark(const std::vector<std::string>& command) {
  // The shell's complaints about the command begin with the last word.
  std::vector<std::string> words = {"/bin/sh", "-c", "echo ronda-start $$ >&2; exec \"$@\"", "rondarun"};
  words.insert(words.end(), command.begin(), command.end());
  return words;
}

void StartMarkReader::Feed(absl::string_view bytes, Emit emit) {
  if (state_ == State::kRest) {
    emit(bytes);
    return;
  }
  held_.append(bytes.data(), bytes.size());
  const size_t newline = held_.find('\n');
  if (newline == std::string::npos && MayBecomeMark(held_)) return;
  state_ = State::kRest;
  const std::string held = std::exchange(held_, {});
  pid_ = ReadMark(absl::string_view(held).substr(0, newline));
  const absl::string_view rest = absl::string_view(held).substr(pid_.has_value() ? newline + 1 : 0);
  if (!rest.empty()) emit(rest);
}

void StartMarkReader::Finish(Emit emit) {
  state_ = State::kRest;
  if (!held_.empty()) emit(std::exchange(held_, {}));
}

}  // namespace ronda
