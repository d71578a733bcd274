// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_RUNTIME_BASE_PLUGIN_SEARCH_H_
#define RONDA_RUNTIME_BASE_PLUGIN_SEARCH_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace ronda {

// Describes a plugin: a part of Ronda in a shared library of its own, because it needs libraries that some machines
// lack.
struct PluginDescription {
  absl::string_view kind;      // "MPI plugin"
  absl::string_view file;      // "libronda_mpi.so"
  absl::string_view variable;  // the variable for its path, "RONDA_MPI_PLUGIN"
  absl::string_view needs;     // "Debian's libopenmpi3 and openmpi-bin"
  const char* symbol;          // a function that returns a table with a uint32_t first
  uint32_t version;            // the required value of the uint32_t
  enum class Symbols { kLocal, kGlobal } symbols = Symbols::kLocal;  // kGlobal: all libraries see the plugin's
};

// Loads the plugin at `path` for the lifetime of the process, and returns its table. If `path` is empty, searches the
// folder of the library or program that contains this code, then ../lib relative to that folder, then the loader's
// search path.
//
// Errors: NOT_FOUND that names the paths it tried and the remedy; FAILED_PRECONDITION if the file has the wrong
// version, or is not this plugin.
absl::StatusOr<const void*> LoadPlugin(const PluginDescription& plugin, const std::string& path);

}  // namespace ronda

#endif  // RONDA_RUNTIME_BASE_PLUGIN_SEARCH_H_
