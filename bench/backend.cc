#include "bench/backend.h"

#include <algorithm>
#include <cstddef>

namespace ronda::bench {

const std::vector<std::string>& BackendNames() {
  static const auto* const names = new std::vector<std::string>{"shm", "inprocess"};
  return *names;
}

const std::string& Name(Backend backend) { return BackendNames()[static_cast<size_t>(backend)]; }

Backend BackendOf(const std::string& name) {
  const std::vector<std::string>& names = BackendNames();
  return static_cast<Backend>(std::find(names.begin(), names.end(), name) - names.begin());
}

}  // namespace ronda::bench
