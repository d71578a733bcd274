// SPDX-License-Identifier: Apache-2.0

// An MPI plugin of a later version. Ronda knows only the first field of the plugin's table.
#include "runtime/mpi/plugin.h"

extern "C" __attribute__((visibility("default"))) const ronda_mpi_plugin* ronda_mpi_plugin_table(void) {
  static const ronda_mpi_plugin table = {.version = RONDA_MPI_PLUGIN_VERSION + 1};
  return &table;
}
