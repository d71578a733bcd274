// SPDX-License-Identifier: Apache-2.0

#include "programs/options/shell_words.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "runtime/base/status_macros.h"

namespace ronda {
namespace {

absl::Status ReadEscaped(absl::string_view* rest, std::string* word) {
  if (rest->empty()) return absl::InvalidArgumentError("ends with a backslash, which needs a character behind it");
  word->push_back(rest->front());
  rest->remove_prefix(1);
  return absl::OkStatus();
}

// Appends the text up to the next `quote` to *word. Between double quotes, a backslash still escapes the next
// character.
absl::Status ReadQuoted(char quote, absl::string_view* rest, std::string* word) {
  while (!rest->empty()) {
    const char c = rest->front();
    rest->remove_prefix(1);
    if (c == quote) return absl::OkStatus();
    if (c == '\\' && quote == '"') {
      RONDA_RETURN_IF_ERROR(ReadEscaped(rest, word));
    } else {
      word->push_back(c);
    }
  }
  return absl::InvalidArgumentError(
      absl::StrCat("has a quote (", absl::string_view(&quote, 1), ") that is not closed"));
}

bool IsPlain(char c) {
  return absl::ascii_isalnum(static_cast<unsigned char>(c)) ||
         absl::string_view("_-+=./:,@%").find(c) != absl::string_view::npos;
}

}  // namespace

absl::StatusOr<std::vector<std::string>> SplitShellWords(absl::string_view text) {
  std::vector<std::string> words;
  std::optional<std::string> word;  // set from its first character or quote on, because "" is a word
  while (!text.empty()) {
    const char c = text.front();
    text.remove_prefix(1);
    if (absl::ascii_isspace(static_cast<unsigned char>(c))) {
      if (word) words.push_back(*std::exchange(word, std::nullopt));
      continue;
    }
    if (!word) word.emplace();
    if (c == '\\') {
      RONDA_RETURN_IF_ERROR(ReadEscaped(&text, &*word));
    } else if (c == '\'' || c == '"') {
      RONDA_RETURN_IF_ERROR(ReadQuoted(c, &text, &*word));
    } else {
      word->push_back(c);
    }
  }
  if (word) words.push_back(*std::move(word));
  return words;
}

std::string ShellQuote(absl::string_view word) {
  if (!word.empty() && std::all_of(word.begin(), word.end(), IsPlain)) return std::string(word);
  return absl::StrCat("'", absl::StrReplaceAll(word, {{"'", "'\\''"}}), "'");
}

std::string ShellQuote(const std::vector<std::string>& words) {
  return absl::StrJoin(words, " ",
                       [](std::string* out, const std::string& word) { absl::StrAppend(out, ShellQuote(word)); });
}

}  // namespace ronda
