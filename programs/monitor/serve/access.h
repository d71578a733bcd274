// SPDX-License-Identifier: Apache-2.0

// Decides which requests the monitor answers, and reads and makes the file with the token.
#ifndef RONDA_PROGRAMS_MONITOR_SERVE_ACCESS_H_
#define RONDA_PROGRAMS_MONITOR_SERVE_ACCESS_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "runtime/base/environment.h"

namespace ronda {

// Returns the name in a Host header, in lower case: "node1" of "Node1:9000", "[::1]" of "[::1]:9000". Returns nullopt
// if the header is malformed.
std::optional<std::string> NameInHost(absl::string_view host);

// Returns the token in an Authorization header. The header is "Bearer TOKEN", or uses the scheme Basic with any name
// and with the token as the password. Browsers send the Basic form after they have asked the user for a password.
// Returns nullopt if the header has another form.
std::optional<std::string> TokenInAuthorization(absl::string_view authorization);

// The values of one header field of a request. The field may occur several times in the request.
using HeaderValues = std::vector<std::string>;

// Decides whether the monitor answers a request. Thread-safe, because an Access is immutable.
class Access {
 public:
  // Access checks the request's host before its token. So a page of another site learns nothing about tokens, even if
  // the name of that site resolves to this host.
  enum class Verdict { kWelcome, kWrongHost, kNoToken, kWrongToken };

  // `names` are the names under which the monitor can be reached, in lower case, as NameInHost returns them.
  // REQUIRES: `token` is not empty.
  Access(std::string token, std::vector<std::string> names);

  // Returns the verdict on a request. The check takes the same time for all wrong tokens of the same length.
  Verdict Judge(const HeaderValues& hosts, const HeaderValues& authorizations) const;

  const std::string& token() const { return token_; }
  const std::vector<std::string>& names() const { return names_; }

 private:
  const std::string token_;
  const std::vector<std::string> names_;
};

// Reads the token in the file.
// Errors: NOT_FOUND if the file does not exist. FAILED_PRECONDITION if other users could read or replace the file.
// INVALID_ARGUMENT if the file has no token.
absl::StatusOr<std::string> ReadTokenFile(const std::string& path);

// Returns the folder for files that only this user may access. The folder is `ronda` in $XDG_RUNTIME_DIR or, if this
// variable is not set, /tmp/ronda-UID. Creates the folder if it does not exist.
// Errors: FAILED_PRECONDITION if other users have access to the folder; the errors of the operating system.
absl::StatusOr<std::string> UserFolder(const EnvironmentReader& environment);

// Returns the path of the token's file in `folder`. If the file does not exist, creates it with a new token. Later
// monitors of the user use the same token.
// Errors: the errors of the operating system.
absl::StatusOr<std::string> EnsureTokenFile(const std::string& folder);

}  // namespace ronda

#endif  // RONDA_PROGRAMS_MONITOR_SERVE_ACCESS_H_
