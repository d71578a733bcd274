// SPDX-License-Identifier: Apache-2.0

// Environments for tests.
#ifndef RONDA_TESTS_RUNTIME_BACKENDS_VARIABLES_H_
#define RONDA_TESTS_RUNTIME_BACKENDS_VARIABLES_H_

#include <map>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "runtime/backends/read_config.h"
#include "runtime/base/config.h"

namespace ronda {

using Variables = std::map<std::string, std::string>;

inline absl::StatusOr<Config> Read(const Variables& variables) {
  return ReadConfig([&variables](const char* name) -> std::optional<std::string> {
    const auto it = variables.find(name);
    if (it == variables.end()) return std::nullopt;
    return it->second;
  });
}

// Returns `base` with `changes` applied. The value "-" unsets a variable.
inline Variables With(Variables base, const Variables& changes) {
  for (const auto& [name, value] : changes) {
    base.erase(name);
    if (value != "-") base[name] = value;
  }
  return base;
}

}  // namespace ronda

#endif  // RONDA_TESTS_RUNTIME_BACKENDS_VARIABLES_H_
