#include "runtime/mpi/plugin_library.h"

#include <dlfcn.h>
#include <link.h>
#include <unistd.h>

#include <climits>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace ronda {
namespace {

using TableFunction = const ronda_mpi_plugin* (*)();

// What of Debian's an MPI's programs need.
absl::string_view PackagesOf(MpiFlavor flavor) {
  return flavor == MpiFlavor::kOpenMpi ? "libopenmpi3 and openmpi-bin" : "libmpich12 and mpich";
}

std::string OwnProgram() {
  char path[PATH_MAX];
  const ssize_t length = readlink("/proc/self/exe", path, sizeof(path));
  return std::string(path, length > 0 ? static_cast<size_t>(length) : 0);
}

// The shared library that this function is in, or the program.
std::string OwnFile() {
  Dl_info info;
  link_map* map = nullptr;
  const bool is_found =
      dladdr1(reinterpret_cast<void*>(&OwnFile), &info, reinterpret_cast<void**>(&map), RTLD_DL_LINKMAP) != 0;
  // The program's own name in the map is empty.
  return is_found && map->l_name[0] != '\0' ? map->l_name : OwnProgram();
}

std::vector<std::string> PlacesOf(MpiFlavor flavor, const std::string& path) {
  if (!path.empty()) return {path};
  const std::string own = OwnFile();
  const std::string folder = own.substr(0, own.rfind('/') + 1);
  const absl::string_view name = PluginName(flavor);
  return {absl::StrCat(folder, name), absl::StrCat(folder, "../lib/", name), std::string(name)};
}

absl::StatusOr<const ronda_mpi_plugin*> TableOf(void* library, const std::string& place) {
  const auto function = reinterpret_cast<TableFunction>(dlsym(library, RONDA_MPI_PLUGIN_SYMBOL));
  if (function == nullptr) {
    return absl::FailedPreconditionError(absl::StrCat(place, " is no MPI plugin of Ronda's"));
  }
  const ronda_mpi_plugin* const table = function();
  if (table->version == RONDA_MPI_PLUGIN_VERSION) return table;
  return absl::FailedPreconditionError(absl::StrCat(place, " is of version ", table->version, ", and version ",
                                                    RONDA_MPI_PLUGIN_VERSION,
                                                    " is needed: install it together with libronda.so"));
}

}  // namespace

absl::string_view PluginName(MpiFlavor flavor) {
  return flavor == MpiFlavor::kOpenMpi ? "libronda_mpi.so" : "libronda_mpi_mpich.so";
}

absl::StatusOr<const ronda_mpi_plugin*> LoadMpiPlugin(MpiFlavor flavor, const std::string& path) {
  std::vector<std::string> failures;
  for (const std::string& place : PlacesOf(flavor, path)) {
    // Global, because Open MPI's components look for its symbols.
    void* const library = dlopen(place.c_str(), RTLD_NOW | RTLD_GLOBAL);
    if (library != nullptr) return TableOf(library, place);
    failures.emplace_back(dlerror());
  }
  return absl::NotFoundError(absl::StrCat("Ronda's MPI plugin cannot be loaded (", absl::StrJoin(failures, "; "),
                                          "): it belongs beside libronda.so, or where RONDA_MPI_PLUGIN says, and needs "
                                          "Debian's ",
                                          PackagesOf(flavor)));
}

}  // namespace ronda
