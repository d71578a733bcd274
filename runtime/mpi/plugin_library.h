#ifndef RONDA_RUNTIME_MPI_PLUGIN_LIBRARY_H_
#define RONDA_RUNTIME_MPI_PLUGIN_LIBRARY_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "runtime/mpi/plugin.h"

namespace ronda {

// Which MPI a process was started under, and so which plugin fits.
enum class MpiFlavor { kOpenMpi, kMpich };

// The file name of the plugin for it: "libronda_mpi.so", "libronda_mpi_mpich.so".
absl::string_view PluginName(MpiFlavor flavor);

// Loads the plugin for an MPI, for good (MPI libraries do not survive being unloaded): from `path` or, if that is
// empty, from beside the library or program that this is in, from ../lib of there, or from where the loader looks.
//
// Errors: NOT_FOUND that names the places looked at and what to do; FAILED_PRECONDITION if it is of another version.
absl::StatusOr<const ronda_mpi_plugin*> LoadMpiPlugin(MpiFlavor flavor, const std::string& path);

}  // namespace ronda

#endif  // RONDA_RUNTIME_MPI_PLUGIN_LIBRARY_H_
