// SPDX-License-Identifier: Apache-2.0

#include "programs/monitor/serve/access.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "runtime/base/status_macros.h"
#include "runtime/base/unique_fd.h"
#include "runtime/net/proof.h"

namespace ronda {
namespace {

constexpr size_t kTokenBytes = 32;
constexpr size_t kShortestToken = 16;
constexpr size_t kLongestToken = 256;
constexpr char kTokenFile[] = "monitor.token";

bool IsNameCharacter(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return absl::ascii_isalnum(byte) || c == '.' || c == '-' || c == '_';
}

bool IsPort(absl::string_view text) {
  return !text.empty() && text.size() <= 5 && std::all_of(text.begin(), text.end(), [](char c) {
    return absl::ascii_isdigit(static_cast<unsigned char>(c));
  });
}

// Returns whether `c` may occur in a b64token (RFC 6750).
bool IsTokenCharacter(char c) {
  return absl::ascii_isalnum(static_cast<unsigned char>(c)) ||
         absl::string_view("-._~+/=").find(c) != absl::string_view::npos;
}

bool IsToken(absl::string_view text) {
  return text.size() >= kShortestToken && text.size() <= kLongestToken &&
         std::all_of(text.begin(), text.end(), IsTokenCharacter);
}

// Returns the text after `scheme` and spaces, or nullopt if `text` starts with another scheme.
std::optional<absl::string_view> AfterScheme(absl::string_view scheme, absl::string_view text) {
  if (!absl::StartsWithIgnoreCase(text, scheme)) return std::nullopt;
  const absl::string_view rest = text.substr(scheme.size());
  const absl::string_view value = absl::StripLeadingAsciiWhitespace(rest);
  if (value.size() == rest.size()) return std::nullopt;
  return value;
}

absl::Status CheckIsOurs(const std::string& path, const struct stat& info) {
  if (info.st_uid != geteuid()) {
    return absl::FailedPreconditionError(absl::StrCat(path, " belongs to user ", info.st_uid, ", not to you"));
  }
  if ((info.st_mode & 077) != 0) {
    return absl::FailedPreconditionError(absl::StrCat(path, " has mode 0", absl::StrFormat("%o", info.st_mode & 0777),
                                                      ": others than you may use it; call chmod go= ", path));
  }
  return absl::OkStatus();
}

// Creates a folder in which no other user can create or find files.
absl::Status MakeOwnFolder(const std::string& path) {
  if (mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) {
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot create ", path));
  }
  struct stat info;
  if (lstat(path.c_str(), &info) != 0) return absl::ErrnoToStatus(errno, absl::StrCat("cannot look at ", path));
  if (!S_ISDIR(info.st_mode)) {
    return absl::FailedPreconditionError(absl::StrCat(path, " is in the way: it is no folder"));
  }
  return CheckIsOurs(path, info);
}

absl::Status WriteFile(const std::string& path, absl::string_view text) {
  const UniqueFd file(open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!file.valid()) return absl::ErrnoToStatus(errno, absl::StrCat("cannot create ", path));
  if (write(file.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size())) {
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot write ", path));
  }
  return absl::OkStatus();
}

}  // namespace

std::optional<std::string> NameInHost(absl::string_view host) {
  size_t end = 0;
  if (absl::StartsWith(host, "[")) {
    end = host.find(']');
    const bool is_address =
        end != absl::string_view::npos && std::all_of(host.begin() + 1, host.begin() + end, [](char c) {
          return absl::ascii_isxdigit(static_cast<unsigned char>(c)) || c == ':' || c == '.';
        });
    if (!is_address) return std::nullopt;
    ++end;
  } else {
    end = std::min(host.find(':'), host.size());
    if (!std::all_of(host.begin(), host.begin() + end, IsNameCharacter)) return std::nullopt;
  }
  const absl::string_view rest = host.substr(end);
  if (end == 0 || (!rest.empty() && (rest[0] != ':' || !IsPort(rest.substr(1))))) return std::nullopt;
  return absl::AsciiStrToLower(host.substr(0, end));
}

std::optional<std::string> TokenInAuthorization(absl::string_view authorization) {
  if (const auto token = AfterScheme("Bearer", authorization)) return std::string(*token);
  const auto basic = AfterScheme("Basic", authorization);
  std::string pair;
  if (!basic || !absl::Base64Unescape(*basic, &pair)) return std::nullopt;
  const size_t colon = pair.find(':');
  if (colon == std::string::npos) return std::nullopt;
  return pair.substr(colon + 1);
}

Access::Access(std::string token, std::vector<std::string> names)
    : token_(std::move(token)), names_(std::move(names)) {}

Access::Verdict Access::Judge(const HeaderValues& hosts, const HeaderValues& authorizations) const {
  const std::optional<std::string> name = hosts.size() == 1 ? NameInHost(hosts[0]) : std::nullopt;
  if (!name || std::find(names_.begin(), names_.end(), *name) == names_.end()) return Verdict::kWrongHost;
  if (authorizations.empty()) return Verdict::kNoToken;
  const auto token = authorizations.size() == 1 ? TokenInAuthorization(authorizations[0]) : std::nullopt;
  return token && IsSameProof(*token, token_) ? Verdict::kWelcome : Verdict::kWrongToken;
}

absl::StatusOr<std::string> ReadTokenFile(const std::string& path) {
  // O_NONBLOCK, because the path may be a named pipe, on which open() would block.
  const UniqueFd file(open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (!file.valid()) {
    if (errno == ELOOP) return absl::FailedPreconditionError(absl::StrCat(path, " is a symbolic link: name the file"));
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot open the file with the token, ", path));
  }
  struct stat info;
  if (fstat(file.get(), &info) != 0) return absl::ErrnoToStatus(errno, absl::StrCat("cannot look at ", path));
  if (!S_ISREG(info.st_mode)) return absl::FailedPreconditionError(absl::StrCat(path, " is not a file"));
  RONDA_RETURN_IF_ERROR(CheckIsOurs(path, info));
  std::string text(kLongestToken + 2, '\0');
  const ssize_t bytes = read(file.get(), text.data(), text.size());
  if (bytes < 0) return absl::ErrnoToStatus(errno, absl::StrCat("cannot read ", path));
  const absl::string_view token =
      absl::StripAsciiWhitespace(absl::string_view(text).substr(0, static_cast<size_t>(bytes)));
  if (IsToken(token)) return std::string(token);
  return absl::InvalidArgumentError(absl::StrCat(path, " holds no token: a line of ", kShortestToken, " to ",
                                                 kLongestToken,
                                                 " letters, digits and -._~+/= is needed, as of openssl rand -hex 32"));
}

absl::StatusOr<std::string> UserFolder(const EnvironmentReader& environment) {
  const std::optional<std::string> runtime = environment("XDG_RUNTIME_DIR");
  const std::string folder =
      runtime && !runtime->empty() ? absl::StrCat(*runtime, "/ronda") : absl::StrCat("/tmp/ronda-", geteuid());
  RONDA_RETURN_IF_ERROR(MakeOwnFolder(folder));
  return folder;
}

// The file is first written under another name, so that no other process ever finds it incomplete.
absl::StatusOr<std::string> EnsureTokenFile(const std::string& folder) {
  const std::string path = absl::StrCat(folder, "/", kTokenFile);
  if (access(path.c_str(), F_OK) == 0) return path;
  RONDA_ASSIGN_OR_RETURN(const std::string bytes, RandomBytes(kTokenBytes));
  const std::string draft = absl::StrCat(path, ".", getpid());
  unlink(draft.c_str());  // left by a killed process with the same pid
  const absl::Status written = WriteFile(draft, absl::StrCat(absl::BytesToHexString(bytes), "\n"));
  const bool linked = written.ok() && (link(draft.c_str(), path.c_str()) == 0 || errno == EEXIST);
  const int error = errno;
  unlink(draft.c_str());
  RONDA_RETURN_IF_ERROR(written);
  if (!linked) return absl::ErrnoToStatus(error, absl::StrCat("cannot create ", path));
  return path;
}

}  // namespace ronda
