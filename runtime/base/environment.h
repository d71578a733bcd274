// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_RUNTIME_BASE_ENVIRONMENT_H_
#define RONDA_RUNTIME_BASE_ENVIRONMENT_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "runtime/base/variable_name.h"

namespace ronda {

// Reads an environment variable; nullopt if it is unset.
using EnvironmentReader = std::function<std::optional<std::string>(const char* name)>;

// Returns a reader of this process's environment.
EnvironmentReader ProcessEnvironment();

// Returns all environment variables of this process as "NAME=value".
std::vector<std::string> ProcessVariables();

// Returns a message for each of `variables` ("NAME=value") that has Ronda's prefix but is not one of Ronda's variables.
// Such a variable is probably misspelt. The message suggests the most similar variable of Ronda's, if there is one. It
// does not show the value.
std::vector<std::string> DescribeUnknownVariables(const std::vector<std::string>& variables);

struct IntegerRange {
  int64_t min = 0;
  int64_t max = 0;
};

struct DurationRange {
  absl::Duration min = absl::ZeroDuration();
  absl::Duration max = absl::InfiniteDuration();
  absl::string_view expectation;  // the proper form of a value, for messages
  // How to interpret a number without a unit. kNothing: it is an error, because another program assumes a different
  // unit.
  enum class PlainNumber { kSeconds, kNothing } plain_number = PlainNumber::kSeconds;
};

// Parses a duration as absl::ParseDuration does ("1ms", "1.5h", "inf"), or a plain number as seconds.
bool ParseDurationOrSeconds(absl::string_view text, absl::Duration* duration);

// Returns the error for a variable with a bad value, such as "RONDA_RANK="x": should be ...".
absl::Status InvalidVariable(absl::string_view name, absl::string_view value, absl::string_view expectation);

// Parses environment variables into values of several types. If a variable is unset, the Read functions leave `*value`
// unchanged, so its previous content is the default. A variable with an empty value counts as set.
//
// Thread-compatible; keeps a reference to the environment.
//
// Errors: INVALID_ARGUMENT that names the variable, its value and the expected format.
class EnvironmentVariables {
 public:
  explicit EnvironmentVariables(const EnvironmentReader& environment) : environment_(environment) {}

  bool IsSet(VariableName name) const { return Get(name).has_value(); }
  std::optional<std::string> Get(VariableName name) const { return environment_(name.c_str()); }

  absl::Status ReadInteger(VariableName name, IntegerRange range, int64_t* value) const;
  absl::Status ReadInteger(VariableName name, IntegerRange range, std::optional<int>* value) const;

  // Reads "0" or "1".
  absl::Status ReadSwitch(VariableName name, std::optional<bool>* value) const;

  // Reads any non-empty text. `expectation` describes the expected format in error messages.
  absl::Status ReadText(VariableName name, absl::string_view expectation, std::string* value) const;

  // Reads a number of bytes, optionally followed by KiB, MiB or GiB.
  absl::Status ReadBytes(VariableName name, size_t* value) const;

  // Reads a duration as ParseDurationOrSeconds does.
  absl::Status ReadDuration(VariableName name, const DurationRange& range, absl::Duration* value) const;

 private:
  const EnvironmentReader& environment_;
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_BASE_ENVIRONMENT_H_
