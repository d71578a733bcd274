#ifndef RONDA_RUNTIME_LAUNCH_RANDOM_HEX_H_
#define RONDA_RUNTIME_LAUNCH_RANDOM_HEX_H_

#include <cstddef>
#include <string>

#include "absl/status/statusor.h"

namespace ronda {

// `byte_count` bytes of the kernel's random numbers, as twice as many hexadecimal digits; fit for secrets.
// REQUIRES: byte_count <= 256.
absl::StatusOr<std::string> RandomHex(size_t byte_count);

}  // namespace ronda

#endif  // RONDA_RUNTIME_LAUNCH_RANDOM_HEX_H_
