#include "runtime/launch/random_hex.h"

#include <sys/random.h>

#include <cerrno>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"

namespace ronda {

absl::StatusOr<std::string> RandomHex(size_t byte_count) {
  std::string bytes(byte_count, '\0');
  // Up to 256 bytes come in one piece.
  if (getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(byte_count)) {
    return absl::ErrnoToStatus(errno, "cannot get random numbers from the system");
  }
  return absl::BytesToHexString(bytes);
}

}  // namespace ronda
