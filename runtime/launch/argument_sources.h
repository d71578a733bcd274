#ifndef RONDA_RUNTIME_LAUNCH_ARGUMENT_SOURCES_H_
#define RONDA_RUNTIME_LAUNCH_ARGUMENT_SOURCES_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace ronda {

// What the meaning of a command line can depend on, beside its words.
struct ArgumentSources {
  // The content of a file. Errors: NOT_FOUND or the like, whose text says why without naming the file.
  std::function<absl::StatusOr<std::string>(const std::string& path)> read_file;
  std::function<int()> count_cores;                                // that this process may run on
  std::function<int()> count_gpus;                                 // NVIDIA's, as its driver lists them
  std::function<std::vector<std::string>()> own_addresses;         // of this host: its names and numeric addresses
  std::function<bool(const std::string& name)> is_in_environment;  // whether a variable is set

  // Those of the machine and process that asks.
  static ArgumentSources OfThisProcess();
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_LAUNCH_ARGUMENT_SOURCES_H_
