#include "runtime/mpi/plugin_library.h"

#include "runtime/base/plugin_search.h"
#include "runtime/base/status_macros.h"

namespace ronda {

absl::string_view PluginName(MpiFlavor flavor) {
  return flavor == MpiFlavor::kOpenMpi ? "libronda_mpi.so" : "libronda_mpi_mpich.so";
}

absl::StatusOr<const ronda_mpi_plugin*> LoadMpiPlugin(MpiFlavor flavor, const std::string& path) {
  const PluginDescription plugin = {
      .kind = "MPI plugin",
      .file = PluginName(flavor),
      .variable = "RONDA_MPI_PLUGIN",
      .needs = flavor == MpiFlavor::kOpenMpi ? "Debian's libopenmpi3 and openmpi-bin" : "Debian's libmpich12 and mpich",
      .symbol = RONDA_MPI_PLUGIN_SYMBOL,
      .version = RONDA_MPI_PLUGIN_VERSION,
      .symbols = PluginDescription::Symbols::kGlobal};  // Open MPI's components look for its symbols
  RONDA_ASSIGN_OR_RETURN(const void* const table, LoadPlugin(plugin, path));
  return static_cast<const ronda_mpi_plugin*>(table);
}

}  // namespace ronda
