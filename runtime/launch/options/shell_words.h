// Words of a command line as a shell reads and writes them.
#ifndef RONDA_RUNTIME_LAUNCH_OPTIONS_SHELL_WORDS_H_
#define RONDA_RUNTIME_LAUNCH_OPTIONS_SHELL_WORDS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace ronda {

// Splits `text` into words as a shell does: at blanks, but for those between quotes or behind a backslash. Nothing is
// expanded.
// Errors: INVALID_ARGUMENT if a quote is not closed or a backslash has nothing behind it.
absl::StatusOr<std::vector<std::string>> SplitShellWords(absl::string_view text);

// `word` so that a shell reads it back: as it is, or between single quotes.
std::string ShellQuote(absl::string_view word);

// The command line of `words`.
std::string ShellQuote(const std::vector<std::string>& words);

}  // namespace ronda

#endif  // RONDA_RUNTIME_LAUNCH_OPTIONS_SHELL_WORDS_H_
