// SPDX-License-Identifier: Apache-2.0

#include "runtime/base/plugin_search.h"

#include <dlfcn.h>
#include <link.h>
#include <unistd.h>

#include <climits>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace ronda {
namespace {

using TableFunction = const uint32_t* (*)();

std::string OwnProgram() {
  char path[PATH_MAX];
  const ssize_t length = readlink("/proc/self/exe", path, sizeof(path));
  return std::string(path, length > 0 ? static_cast<size_t>(length) : 0);
}

// Returns the path of the shared library or program that contains this function.
std::string OwnFile() {
  Dl_info info;
  link_map* map = nullptr;
  const bool is_found =
      dladdr1(reinterpret_cast<void*>(&OwnFile), &info, reinterpret_cast<void**>(&map), RTLD_DL_LINKMAP) != 0;
  // The link map has an empty name for the program itself.
  return is_found && map->l_name[0] != '\0' ? map->l_name : OwnProgram();
}

std::vector<std::string> PlacesOf(absl::string_view file, const std::string& path) {
  if (!path.empty()) return {path};
  const std::string own = OwnFile();
  const std::string folder = own.substr(0, own.rfind('/') + 1);
  return {absl::StrCat(folder, file), absl::StrCat(folder, "../lib/", file), std::string(file)};
}

absl::StatusOr<const void*> TableOf(void* library, const PluginDescription& plugin, const std::string& place) {
  const auto function = reinterpret_cast<TableFunction>(dlsym(library, plugin.symbol));
  if (function == nullptr) {
    return absl::FailedPreconditionError(absl::StrCat(place, " is no ", plugin.kind, " of Ronda's"));
  }
  const uint32_t* const table = function();
  if (*table == plugin.version) return table;
  return absl::FailedPreconditionError(absl::StrCat(place, " is of version ", *table, ", and version ", plugin.version,
                                                    " is needed: install it together with libronda.so"));
}

}  // namespace

absl::StatusOr<const void*> LoadPlugin(const PluginDescription& plugin, const std::string& path) {
  const int scope = plugin.symbols == PluginDescription::Symbols::kGlobal ? RTLD_GLOBAL : RTLD_LOCAL;
  std::vector<std::string> failures;
  for (const std::string& place : PlacesOf(plugin.file, path)) {
    void* const library = dlopen(place.c_str(), RTLD_NOW | scope);
    if (library != nullptr) return TableOf(library, plugin, place);
    failures.emplace_back(dlerror());
  }
  return absl::NotFoundError(absl::StrCat("Ronda's ", plugin.kind, " cannot be loaded (", absl::StrJoin(failures, "; "),
                                          "): it belongs beside libronda.so, or where ", plugin.variable,
                                          " says, and needs ", plugin.needs));
}

}  // namespace ronda
