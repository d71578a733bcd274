// Who may ask the monitor: the rules for requests, and the file that holds the token.
#ifndef RONDA_RUNTIME_MONITOR_SERVE_ACCESS_H_
#define RONDA_RUNTIME_MONITOR_SERVE_ACCESS_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "runtime/base/environment.h"

namespace ronda {

// The name in a Host header, in lower case: "node1" of "Node1:9000", "[::1]" of "[::1]:9000". nullopt: it is malformed.
std::optional<std::string> NameInHost(absl::string_view host);

// The token in an Authorization header: "Bearer TOKEN" or, as browsers ask their users for a password, Basic with any
// name and the token as the password. nullopt: neither.
std::optional<std::string> TokenInAuthorization(absl::string_view authorization);

// A header of a request: its values, as often as it is there.
using HeaderValues = std::vector<std::string>;

// Decides about requests. Thread-safe: immutable.
class Access {
 public:
  // kWrongHost comes first: a page of another site whose name leads here learns nothing about tokens.
  enum class Verdict { kWelcome, kWrongHost, kNoToken, kWrongToken };

  // `names` are those under which the monitor is reached, in lower case, as NameInHost returns them.
  // REQUIRES: `token` is not empty.
  Access(std::string token, std::vector<std::string> names);

  // Takes the same time for each wrong token of the same length.
  Verdict Judge(const HeaderValues& hosts, const HeaderValues& authorizations) const;

  const std::string& token() const { return token_; }
  const std::vector<std::string>& names() const { return names_; }

 private:
  const std::string token_;
  const std::vector<std::string> names_;
};

// Reads the token of the file.
// Errors: NOT_FOUND; FAILED_PRECONDITION if others than this user could read or replace it; INVALID_ARGUMENT if it
// holds no token.
absl::StatusOr<std::string> ReadTokenFile(const std::string& path);

// The folder for files of this user alone, created if need be: ronda in $XDG_RUNTIME_DIR or, without that variable,
// /tmp/ronda-UID.
// Errors: FAILED_PRECONDITION if it is not this user's alone; the system's.
absl::StatusOr<std::string> UserFolder(const EnvironmentReader& environment);

// The path of the token's file in `folder`, which is created with a new token if it is not there. Later monitors of the
// user have the same token.
// Errors: the system's.
absl::StatusOr<std::string> EnsureTokenFile(const std::string& folder);

}  // namespace ronda

#endif  // RONDA_RUNTIME_MONITOR_SERVE_ACCESS_H_
