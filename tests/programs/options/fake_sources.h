// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_TESTS_PROGRAMS_OPTIONS_FAKE_SOURCES_H_
#define RONDA_TESTS_PROGRAMS_OPTIONS_FAKE_SOURCES_H_

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "programs/options/arguments.h"

namespace ronda {

// A machine whose properties a test chooses.
struct FakeMachine {
  std::map<std::string, std::string> files;  // contents by path
  int cores = 8;
  int gpus = 0;
  std::vector<std::string> addresses = {"alpha", "10.0.0.1", "fd00::1"};
  std::map<std::string, std::string> environment = {{"PATH", "/bin"}};
};

// Returns the ArgumentSources that rondarun would have on `machine`.
inline ArgumentSources Sources(const FakeMachine& machine) {
  return {.read_file = [machine](const std::string& path) -> absl::StatusOr<std::string> {
            const auto file = machine.files.find(path);
            if (file == machine.files.end()) return absl::NotFoundError(path + ": No such file or directory");
            return file->second;
          },
          .count_cores = [machine] { return machine.cores; },
          .count_gpus = [machine] { return machine.gpus; },
          .own_addresses = [machine] { return machine.addresses; },
          .variable = [machine](const std::string& name) -> std::optional<std::string> {
            const auto variable = machine.environment.find(name);
            return variable == machine.environment.end() ? std::nullopt : std::optional(variable->second);
          },
          .variables =
              [machine] {
                std::vector<std::string> variables;
                for (const auto& [name, value] : machine.environment) variables.push_back(name + "=" + value);
                return variables;
              }};
}

}  // namespace ronda

#endif  // RONDA_TESTS_PROGRAMS_OPTIONS_FAKE_SOURCES_H_
