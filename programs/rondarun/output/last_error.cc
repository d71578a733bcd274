// SPDX-License-Identifier: Apache-2.0

#include "programs/rondarun/output/last_error.h"

#include <cstddef>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace ronda {
namespace {

// torch.distributed prints "[rank0]: " in front of each line of an uncaught exception.
absl::string_view WithoutRank(absl::string_view line) {
  absl::string_view rest = line;
  if (!absl::ConsumePrefix(&rest, "[rank")) return line;
  while (!rest.empty() && absl::ascii_isdigit(rest.front())) rest.remove_prefix(1);
  return absl::ConsumePrefix(&rest, "]: ") ? rest : line;
}

bool BeginsTraceback(absl::string_view line) { return absl::StartsWith(line, "Traceback (most recent call last):"); }

bool BeginsGroupTraceback(absl::string_view line) {
  return absl::StartsWith(absl::StripLeadingAsciiWhitespace(line), "+ Exception Group Traceback (most recent call");
}

// Returns the text after "| ", with which each line of an exception group starts, or "" if the line has no "| ".
absl::string_view LineOfGroup(absl::string_view line) {
  line = absl::StripLeadingAsciiWhitespace(line);
  return absl::ConsumePrefix(&line, "| ") ? line : "";
}

// Ronda's threads may log messages between the lines of a traceback.
bool IsLogOfRonda(absl::string_view line) { return absl::StartsWith(line, "ronda["); }

// Python prints one of these lines before a traceback that does not explain why the program ends.
bool IsSecondary(absl::string_view line) {
  return absl::StartsWith(line, "Exception ignored ") || absl::StartsWith(line, "Exception in thread ") ||
         absl::StartsWith(line, "Error in atexit.");
}

// Recognises a line printed by Python's `warnings` module, such as "path.py:12: UserWarning: text".
bool IsWarning(absl::string_view line) {
  constexpr absl::string_view kSign = "Warning: ";
  const size_t sign = line.find(kSign);
  if (sign == absl::string_view::npos) return false;
  absl::string_view before = line.substr(0, sign);
  while (!before.empty() && (absl::ascii_isalnum(before.back()) || before.back() == '_' || before.back() == '.')) {
    before.remove_suffix(1);
  }
  if (!absl::ConsumeSuffix(&before, ": ")) return false;
  return !before.empty() && absl::ascii_isdigit(before.back()) && absl::StrContains(before, ':');
}

}  // namespace

void LastError::Add(absl::string_view line) {
  line = WithoutRank(absl::StripTrailingAsciiWhitespace(line));
  if (line.empty()) return;
  if (lines_behind_ < kMostBehind) ++lines_behind_;
  if (IsLogOfRonda(line)) return AddOutside(line);
  if (BeginsTraceback(line)) {
    state_ = State::kFrames;
    return;
  }
  if (BeginsGroupTraceback(line)) {
    state_ = State::kGroupFrames;
    return;
  }
  switch (state_) {
    case State::kFrames:
      if (line.front() != ' ') RecordException(line);
      return;
    case State::kGroupFrames:
      return AddToGroup(line);
    case State::kMessage:
      state_ = State::kOutside;
      absl::StrAppend(&text_, " ", absl::StripLeadingAsciiWhitespace(line));
      return;
    case State::kSourceOfWarning:
      state_ = State::kOutside;
      if (line.front() != ' ') AddOutside(line);
      return;
    case State::kOutside:
      return AddOutside(line);
  }
}

void LastError::AddToGroup(absl::string_view line) {
  const absl::string_view own = LineOfGroup(line);
  if (own.empty()) {
    state_ = State::kOutside;
    AddOutside(line);
  } else if (own.front() != ' ') {
    RecordException(own);
  }
}

void LastError::AddOutside(absl::string_view line) {
  if (IsSecondary(line)) {
    weight_ = Weight::kSecondary;
  } else if (IsWarning(line)) {
    state_ = State::kSourceOfWarning;
  } else if (absl::StartsWith(line, "Fatal Python error: ")) {
    RecordFinal(line);
  } else if (!has_exception() || absl::StartsWith(line, "terminate called ")) {
    lines_behind_ = kMostBehind;
    text_.assign(line.data(), line.size());
  }
}

void LastError::RecordException(absl::string_view line) {
  const bool counts = weight_ == Weight::kPrimary || !has_exception();
  weight_ = Weight::kPrimary;
  state_ = State::kOutside;
  if (!counts) return;
  RecordFinal(line);
  if (absl::EndsWith(line, ":")) state_ = State::kMessage;
}

void LastError::RecordFinal(absl::string_view line) {
  text_.assign(line.data(), line.size());
  lines_behind_ = 0;
}

}  // namespace ronda
