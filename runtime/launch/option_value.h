// The values of options: what an option can take, and the error that says so.
#ifndef RONDA_RUNTIME_LAUNCH_OPTION_VALUE_H_
#define RONDA_RUNTIME_LAUNCH_OPTION_VALUE_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace ronda {

// An option as the user wrote it.
struct OptionUse {
  // Other users of the machine can read a command line, but not necessarily a file.
  enum class Origin { kCommandLine, kFile };

  std::string name;   // "-np"
  std::string value;  // empty for options that take none
  Origin origin = Origin::kCommandLine;
};

// INVALID_ARGUMENT that quotes the value and says what the option takes: `expected` continues "-np takes ".
absl::Status BadValue(const OptionUse& use, absl::string_view expected);

// A number from `min` to `max`.
struct NumberForm {
  enum class Digits { kWhole, kAny };

  absl::string_view what;     // "a number of seconds"
  absl::string_view example;  // "10"
  double min = 0;
  double max = 0;
  Digits digits = Digits::kWhole;
};

// Errors: INVALID_ARGUMENT that shows the form.
absl::StatusOr<double> ParseNumber(const OptionUse& use, const NumberForm& form);

// As ParseNumber, for whole numbers.
// REQUIRES: the form's range lies within int's.
absl::StatusOr<int> ParseInteger(const OptionUse& use, const NumberForm& form);

// Text that must not be empty.
struct TextForm {
  absl::string_view what;     // "a file"
  absl::string_view example;  // "tuning.csv"
};

absl::StatusOr<std::string> ParseText(const OptionUse& use, const TextForm& form);

// A list separated by commas, none of its elements empty.
absl::StatusOr<std::vector<std::string>> ParseList(const OptionUse& use, const TextForm& form);

// An address with a port.
struct Endpoint {
  std::string address;
  int port = 0;

  bool operator==(const Endpoint&) const = default;
};

// Ports that a program may listen on.
inline constexpr NumberForm kPortForm = {.what = "a port", .example = "29500", .min = 1, .max = 65535};

// Reads "host:1234", "10.0.0.1:1234" or "[fe80::1]:1234".
absl::StatusOr<Endpoint> ParseEndpoint(const OptionUse& use);

}  // namespace ronda

#endif  // RONDA_RUNTIME_LAUNCH_OPTION_VALUE_H_
