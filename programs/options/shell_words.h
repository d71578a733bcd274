// SPDX-License-Identifier: Apache-2.0

// Parses and writes words of a command line in shell syntax.
#ifndef RONDA_PROGRAMS_OPTIONS_SHELL_WORDS_H_
#define RONDA_PROGRAMS_OPTIONS_SHELL_WORDS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace ronda {

// Splits `text` into words as a shell does: at blanks that are neither quoted nor escaped by a backslash. Expands
// nothing. Errors: INVALID_ARGUMENT if a quote is not closed, or if nothing follows a backslash.
absl::StatusOr<std::vector<std::string>> SplitShellWords(absl::string_view text);

// Returns `word` in a form that a shell parses back to it: unchanged, or between single quotes.
std::string ShellQuote(absl::string_view word);

// Returns the words as a command line for a shell.
std::string ShellQuote(const std::vector<std::string>& words);

}  // namespace ronda

#endif  // RONDA_PROGRAMS_OPTIONS_SHELL_WORDS_H_
