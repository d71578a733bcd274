#ifndef RONDA_RUNTIME_LAUNCH_SHELL_QUOTE_H_
#define RONDA_RUNTIME_LAUNCH_SHELL_QUOTE_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace ronda {

// `word` as a shell reads it back: as it is, or between single quotes.
std::string ShellQuote(absl::string_view word);

// The command line of `words`.
std::string ShellQuote(const std::vector<std::string>& words);

}  // namespace ronda

#endif  // RONDA_RUNTIME_LAUNCH_SHELL_QUOTE_H_
