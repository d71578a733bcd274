// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_BENCH_PEERS_MPI_VERSION_H_
#define RONDA_BENCH_PEERS_MPI_VERSION_H_

#include <mpi.h>

#include <algorithm>
#include <cstddef>
#include <string>

namespace ronda::bench {

// Returns the name and version of the MPI library that this program is linked with, for example "Open MPI v4.1.4".
// Drops everything from the first comma or line break on.
inline std::string MpiLibraryVersion() {
  char text[MPI_MAX_LIBRARY_VERSION_STRING];
  int length = 0;
  MPI_Get_library_version(text, &length);
  std::string version(text, static_cast<size_t>(length));
  version.resize(std::min(version.find_first_of(",\n"), version.size()));
  for (char& c : version) c = c == '\t' ? ' ' : c;
  return version;
}

}  // namespace ronda::bench

#endif  // RONDA_BENCH_PEERS_MPI_VERSION_H_
