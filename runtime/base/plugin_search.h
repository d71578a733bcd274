// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_RUNTIME_BASE_PLUGIN_SEARCH_H_
#define RONDA_RUNTIME_BASE_PLUGIN_SEARCH_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace ronda {

// Describes a plugin, which is a part of Ronda in a separate shared library. The library is separate because it needs
// other libraries, which some machines lack.
struct PluginDescription {
  absl::string_view kind;      // "MPI plugin"
  absl::string_view file;      // "libronda_mpi.so"
  absl::string_view variable;  // the variable for its path, "RONDA_MPI_PLUGIN"
  absl::string_view needs;     // "Debian's libopenmpi3 and openmpi-bin"
  const char* symbol;          // a function that returns a table with a uint32_t first
  uint32_t version;            // the required value of the uint32_t
  enum class Symbols { kLocal, kGlobal } symbols = Symbols::kLocal;  // kGlobal: all libraries see the plugin's
};

// Loads a plugin permanently, and returns its table. The plugin is at `path`. If `path` is empty, searches three
// places: the folder of the library or program that contains this code, ../lib of this folder, and the loader's search
// path.
//
// Errors: NOT_FOUND that names the tried paths and the remedy; FAILED_PRECONDITION if the file has another version, or
// is not this plugin.
absl::StatusOr<const void*> LoadPlugin(const PluginDescription& plugin, const std::string& path);

}  // namespace ronda

#endif  // RONDA_RUNTIME_BASE_PLUGIN_SEARCH_H_
