// SPDX-License-Identifier: Apache-2.0

// The rules for requests to the monitor, and the file with the token.
#ifndef RONDA_PROGRAMS_MONITOR_SERVE_ACCESS_H_
#define RONDA_PROGRAMS_MONITOR_SERVE_ACCESS_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "runtime/base/environment.h"

namespace ronda {

// Returns the name in a Host header, in lower case: "node1" of "Node1:9000", "[::1]" of "[::1]:9000". nullopt: the
// header is malformed.
std::optional<std::string> NameInHost(absl::string_view host);

// The token in an Authorization header. The header is "Bearer TOKEN", or Basic with any name and the token as the
// password. Browsers send Basic after they have asked the user. nullopt: the header has neither form.
std::optional<std::string> TokenInAuthorization(absl::string_view authorization);

// The values of a request's header, which may occur several times.
using HeaderValues = std::vector<std::string>;

// Decides whether requests are answered. Thread-safe: immutable.
class Access {
 public:
  // kWrongHost is checked first: a page of another site, whose name leads here, must get no information about tokens.
  enum class Verdict { kWelcome, kWrongHost, kNoToken, kWrongToken };

  // `names` are the names under which the monitor can be reached, in lower case, as NameInHost returns them.
  // REQUIRES: `token` is not empty.
  Access(std::string token, std::vector<std::string> names);

  // Takes the same time for all wrong tokens of the same length.
  Verdict Judge(const HeaderValues& hosts, const HeaderValues& authorizations) const;

  const std::string& token() const { return token_; }
  const std::vector<std::string>& names() const { return names_; }

 private:
  const std::string token_;
  const std::vector<std::string> names_;
};

// Reads the token in the file.
// Errors: NOT_FOUND. FAILED_PRECONDITION if other users could read or replace the file. INVALID_ARGUMENT if it has no
// token.
absl::StatusOr<std::string> ReadTokenFile(const std::string& path);

// Returns the folder for files of this user alone: `ronda` in $XDG_RUNTIME_DIR or, if that variable is not set,
// /tmp/ronda-UID. It is created if it does not exist.
// Errors: FAILED_PRECONDITION if other users have access to it; the operating system's errors.
absl::StatusOr<std::string> UserFolder(const EnvironmentReader& environment);

// The path of the token's file in `folder`. If there is no file, it is created with a new token. Later monitors of the
// user have the same token.
// Errors: the operating system's errors.
absl::StatusOr<std::string> EnsureTokenFile(const std::string& folder);

}  // namespace ronda

#endif  // RONDA_PROGRAMS_MONITOR_SERVE_ACCESS_H_
