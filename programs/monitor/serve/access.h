// SPDX-License-Identifier: Apache-2.0

// Decides which requests the monitor answers, and reads and creates the token file.
#ifndef RONDA_PROGRAMS_MONITOR_SERVE_ACCESS_H_
#define RONDA_PROGRAMS_MONITOR_SERVE_ACCESS_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "runtime/base/environment.h"

namespace ronda {

// Returns the lower-case name in a Host header: "node1" for "Node1:9000", "[::1]" for "[::1]:9000". Returns nullopt if
// the header is malformed.
std::optional<std::string> NameInHost(absl::string_view host);

// Returns the token in an Authorization header. The header is either "Bearer TOKEN", or uses the Basic scheme with any
// user name and the token as the password. Browsers use the Basic scheme after they have asked the user for a password.
// Returns nullopt if the header has another form.
std::optional<std::string> TokenInAuthorization(absl::string_view authorization);

// The values of one header field of a request. The field may occur several times.
using HeaderValues = std::vector<std::string>;

// Decides whether the monitor answers a request. Immutable, and so thread-safe.
class Access {
 public:
  // The host of a request is checked before its token. So a page of another site learns nothing about tokens, even if
  // the name of that site resolves to this host.
  enum class Verdict { kWelcome, kWrongHost, kNoToken, kWrongToken };

  // `names` are the lower-case names under which the monitor can be reached, as NameInHost returns them. REQUIRES:
  // `token` is not empty.
  Access(std::string token, std::vector<std::string> names);

  // Returns the verdict on a request. The check takes the same time for all wrong tokens of the same length.
  Verdict Judge(const HeaderValues& hosts, const HeaderValues& authorizations) const;

  const std::string& token() const { return token_; }
  const std::vector<std::string>& names() const { return names_; }

 private:
  const std::string token_;
  const std::vector<std::string> names_;
};

// Reads the token from a file. Errors: NOT_FOUND if the file does not exist. FAILED_PRECONDITION if other users can
// read or replace the file. INVALID_ARGUMENT if the file contains no token.
absl::StatusOr<std::string> ReadTokenFile(const std::string& path);

// Returns the folder for files that only this user may access: `ronda` in $XDG_RUNTIME_DIR or, if that variable is
// unset, /tmp/ronda-UID. Creates the folder if it does not exist. Errors: FAILED_PRECONDITION if other users have
// access to the folder; those of the operating system.
absl::StatusOr<std::string> UserFolder(const EnvironmentReader& environment);

// Returns the path of the token file in `folder`. If the file does not exist, creates it with a new token. Later
// monitors of the same user use the same token. Errors: system errors.
absl::StatusOr<std::string> EnsureTokenFile(const std::string& folder);

}  // namespace ronda

#endif  // RONDA_PROGRAMS_MONITOR_SERVE_ACCESS_H_
