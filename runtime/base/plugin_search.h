#ifndef RONDA_RUNTIME_BASE_PLUGIN_SEARCH_H_
#define RONDA_RUNTIME_BASE_PLUGIN_SEARCH_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace ronda {

// A part of Ronda that is a shared library of its own, since it needs libraries that are not on every machine.
struct PluginDescription {
  absl::string_view kind;      // "MPI plugin"
  absl::string_view file;      // "libronda_mpi.so"
  absl::string_view variable;  // that says where it is: "RONDA_MPI_PLUGIN"
  absl::string_view needs;     // "Debian's libopenmpi3 and openmpi-bin"
  const char* symbol;          // its only one: a function that returns a table, which begins with a uint32_t
  uint32_t version;            // that the uint32_t must be
  enum class Symbols { kLocal, kGlobal } symbols = Symbols::kLocal;  // kGlobal: all libraries see its dependencies
};

// Loads a plugin for good, from `path` or, if that is empty, from beside the library or program that this is in, from
// ../lib of there, or from where the loader looks. Returns its table.
//
// Errors: NOT_FOUND that names the paths tried and the remedy; FAILED_PRECONDITION if it is of another version, or
// no such plugin.
absl::StatusOr<const void*> LoadPlugin(const PluginDescription& plugin, const std::string& path);

}  // namespace ronda

#endif  // RONDA_RUNTIME_BASE_PLUGIN_SEARCH_H_
