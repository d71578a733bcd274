#ifndef RONDA_RUNTIME_BASE_ENVIRONMENT_H_
#define RONDA_RUNTIME_BASE_ENVIRONMENT_H_

#include <functional>
#include <optional>
#include <string>

namespace ronda {

// Reads an environment variable; nullopt if it is unset.
using EnvironmentReader = std::function<std::optional<std::string>(const char* name)>;

// The environment of this process.
EnvironmentReader ProcessEnvironment();

}  // namespace ronda

#endif  // RONDA_RUNTIME_BASE_ENVIRONMENT_H_
