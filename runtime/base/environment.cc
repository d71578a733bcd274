#include "runtime/base/environment.h"

#include <cstdlib>

namespace ronda {

EnvironmentReader ProcessEnvironment() {
  return [](const char* name) -> std::optional<std::string> {
    const char* const value = std::getenv(name);
    if (value == nullptr) return std::nullopt;
    return value;
  };
}

}  // namespace ronda
