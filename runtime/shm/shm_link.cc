// SPDX-License-Identifier: Apache-2.0

#include "runtime/shm/shm_link.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <optional>
#include <system_error>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "runtime/shm/epoch_search.h"

namespace ronda {
namespace {

// "pid:[4026531836]"; empty if it is not known.
std::string PidNamespace() {
  std::error_code error;
  return std::filesystem::read_symlink("/proc/self/ns/pid", error).string();
}

std::string Format(const ShmLink& link) {
  return absl::StrFormat("%s %d %d %s", link.Target(), link.creator.start_time, link.error_number, link.pid_namespace);
}

std::optional<ShmLink> Parse(absl::string_view text) {
  const std::vector<absl::string_view> fields = absl::StrSplit(text, absl::MaxSplits(' ', 3));
  const std::vector<absl::string_view> target = absl::StrSplit(fields[0], '/');  // "", "proc", pid, "fd", descriptor
  ShmLink link;
  const bool is_parsed = fields.size() == 4 && target.size() == 5 && absl::SimpleAtoi(target[2], &link.creator.pid) &&
                         absl::SimpleAtoi(target[4], &link.descriptor) &&
                         absl::SimpleAtoi(fields[1], &link.creator.start_time) &&
                         absl::SimpleAtoi(fields[2], &link.error_number);
  if (!is_parsed) return std::nullopt;
  link.pid_namespace = std::string(fields[3]);
  return Format(link) == text ? std::optional(link) : std::nullopt;
}

absl::Status NotOfThisUser(const std::string& path, uid_t owner) {
  return absl::PermissionDeniedError(
      absl::StrCat(path, " belongs to user ", owner, ", but the ranks of this job are user ", geteuid(),
                   "'s: another user's job has the same id, or another user wants to take part; give every rank the "
                   "same user, or this job another id (RONDA_JOB_ID)"));
}

absl::Status NotOfThisNamespace(const std::string& path, const ShmLink& link, const std::string& here) {
  return absl::PermissionDeniedError(
      absl::StrCat(path, " was made in the pid namespace ", link.pid_namespace, ", and this is ", here,
                   ": give the containers of the ranks one pid namespace (docker run --pid=container:NAME), or set "
                   "RONDA_BACKEND=tcp; if no job is using the link, remove it"));
}

}  // namespace

std::string ShmLink::Target() const { return absl::StrCat("/proc/", creator.pid, "/fd/", descriptor); }

ShmLink ShmLinkOfThisProcess(int descriptor, int error_number) {
  return {.creator = ThisProcess(),
          .descriptor = descriptor,
          .error_number = error_number,
          .pid_namespace = PidNamespace()};
}

absl::Status PublishShmLink(const std::string& path, const ShmLink& link) {
  const std::string text = Format(link);
  if (symlink(text.c_str(), path.c_str()) == 0) return absl::OkStatus();
  if (errno != EEXIST) return absl::ErrnoToStatus(errno, absl::StrCat("cannot create ", path));
  const absl::StatusOr<ShmLink> old = ReadShmLink(path);
  if (absl::IsFailedPrecondition(old.status())) return absl::AlreadyExistsError(old.status().message());
  if (!old.ok() && !absl::IsNotFound(old.status())) return old.status();
  if (old.ok() && IsLeftover(path, *old)) RemoveShmLink(path, *old);
  if (symlink(text.c_str(), path.c_str()) == 0) return absl::OkStatus();
  return absl::AlreadyExistsError(absl::StrCat(
      path, " exists: another job has the same id, or a killed job left it behind, and then it can be removed"));
}

absl::StatusOr<ShmLink> ReadShmLink(const std::string& path) {
  struct stat info;
  if (lstat(path.c_str(), &info) != 0) return absl::ErrnoToStatus(ENOENT, path);
  if (info.st_uid != geteuid()) return NotOfThisUser(path, info.st_uid);
  // ShmFile::Create was killed here. The default is a link whose creator is dead.
  if (S_ISREG(info.st_mode) && info.st_size == 0) return ShmLink{.pid_namespace = PidNamespace()};
  std::error_code error;
  const std::string text = std::filesystem::read_symlink(path, error).string();
  if (S_ISLNK(info.st_mode) && error) return absl::ErrnoToStatus(ENOENT, path);
  const std::optional<ShmLink> link = Parse(text);
  if (!link.has_value()) {
    return absl::FailedPreconditionError(
        absl::StrCat(path, " is damaged, or was not made by this version of Ronda; if no job is using it, remove it"));
  }
  const std::string here = PidNamespace();
  if (link->pid_namespace != here) return NotOfThisNamespace(path, *link, here);
  return *link;
}

bool IsLeftover(const std::string& path, const ShmLink& link) {
  if (link.creator.pid == 0 || !IsAlive(link.creator)) return true;
  if (link.descriptor < 0) return false;
  std::error_code error;
  const std::string target = std::filesystem::read_symlink(link.Target(), error).string();
  if (error) return error == std::errc::no_such_file_or_directory;
  // The memory of a job has the name of the link, in another place.
  return !absl::EndsWith(absl::StripSuffix(target, " (deleted)"), path.substr(path.rfind('/')));
}

void RemoveShmLeftovers(const std::string& folder) {
  std::error_code error;
  for (std::filesystem::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    const std::string path = it->path().string();
    if (!absl::StartsWith(path, absl::StrCat(folder, ShmNameOf("", 0)))) continue;
    const absl::StatusOr<ShmLink> link = ReadShmLink(path);
    if (link.ok() && IsLeftover(path, *link)) RemoveShmLink(path, *link);
  }
}

void RemoveShmLink(const std::string& path, const ShmLink& link) {
  const absl::StatusOr<ShmLink> current = ReadShmLink(path);
  if (current.ok() && Format(*current) == Format(link)) unlink(path.c_str());
}

}  // namespace ronda
