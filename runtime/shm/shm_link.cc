// SPDX-License-Identifier: Apache-2.0

#include "runtime/shm/shm_link.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <limits>
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
#include "runtime/base/status_macros.h"
#include "runtime/shm/epoch_search.h"

namespace ronda {
namespace {

// Returns text such as "pid:[4026531836]", or "" if this process's pid namespace is unknown.
std::string PidNamespace() {
  std::error_code error;
  return std::filesystem::read_symlink("/proc/self/ns/pid", error).string();
}

std::string Format(const ShmLink& link) {
  return absl::StrFormat("%s %d %d %d %s", link.Target(), link.creator.start_time, link.error_number, link.is_locked,
                         link.pid_namespace);
}

std::optional<ShmLink> Parse(absl::string_view text) {
  const std::vector<absl::string_view> fields = absl::StrSplit(text, absl::MaxSplits(' ', 4));
  const std::vector<absl::string_view> target = absl::StrSplit(fields[0], '/');  // "", "proc", pid, "fd", descriptor
  ShmLink link;
  int is_locked = 0;
  const bool is_parsed = fields.size() == 5 && target.size() == 5 && absl::SimpleAtoi(target[2], &link.creator.pid) &&
                         absl::SimpleAtoi(target[4], &link.descriptor) &&
                         absl::SimpleAtoi(fields[1], &link.creator.start_time) &&
                         absl::SimpleAtoi(fields[2], &link.error_number) && absl::SimpleAtoi(fields[3], &is_locked);
  if (!is_parsed) return std::nullopt;
  link.is_locked = is_locked != 0;
  link.pid_namespace = std::string(fields[4]);
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

// Describes the lock that the creator of `link` holds on a byte of the folder. Creators take shared locks, so two of
// them in different pid namespaces can lock the same byte. If one then leaves a link behind, the link appears to be in
// use until the other one exits.
struct flock LockOf(const ShmLink& link, int16_t type) {
  constexpr int kPidBits = 22;  // the kernel's PID_MAX_LIMIT
  const uint64_t byte = (link.creator.start_time << kPidBits) | static_cast<uint64_t>(link.creator.pid);
  struct flock lock = {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_start = static_cast<off_t>(byte & uint64_t{std::numeric_limits<off_t>::max()});
  lock.l_len = 1;
  return lock;
}

UniqueFd OpenFolder(const std::string& folder) {
  return UniqueFd(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
}

// Returns whether the creator of `link` has released its lock in `folder`.
bool IsReleased(const std::string& folder, const ShmLink& link) {
  const UniqueFd opened = OpenFolder(folder);
  struct flock lock = LockOf(link, F_WRLCK);
  return fcntl(opened.get(), F_OFD_GETLK, &lock) == 0 && lock.l_type == F_UNLCK;
}

// Like ReadShmLink, but also reads links from other pid namespaces.
absl::StatusOr<ShmLink> ReadAnyLink(const std::string& path) {
  struct stat info;
  if (lstat(path.c_str(), &info) != 0) return absl::ErrnoToStatus(ENOENT, path);
  if (info.st_uid != geteuid()) return NotOfThisUser(path, info.st_uid);
  // A process that was killed in ShmFile::Create() has left an empty file behind. The returned ShmLink has no creator,
  // so IsLeftover() treats it as a leftover.
  if (S_ISREG(info.st_mode) && info.st_size == 0) return ShmLink{.pid_namespace = PidNamespace()};
  std::error_code error;
  const std::string text = std::filesystem::read_symlink(path, error).string();
  if (S_ISLNK(info.st_mode) && error) return absl::ErrnoToStatus(ENOENT, path);
  const std::optional<ShmLink> link = Parse(text);
  if (link.has_value()) return *link;
  return absl::FailedPreconditionError(
      absl::StrCat(path, " is damaged, or was not made by this version of Ronda; if no job is using it, remove it"));
}

absl::Status CheckNamespace(const std::string& path, const ShmLink& link) {
  const std::string here = PidNamespace();
  return link.pid_namespace == here ? absl::OkStatus() : NotOfThisNamespace(path, link, here);
}

}  // namespace

std::string ShmLink::Target() const { return absl::StrCat("/proc/", creator.pid, "/fd/", descriptor); }

ShmLink ShmLinkOfThisProcess(int descriptor, int error_number) {
  return {.creator = ThisProcess(),
          .descriptor = descriptor,
          .error_number = error_number,
          .pid_namespace = PidNamespace()};
}

UniqueFd LockForLink(const std::string& folder, ShmLink* link) {
  UniqueFd opened = OpenFolder(folder);
  struct statfs info;
  struct flock lock = LockOf(*link, F_RDLCK);
  link->is_locked = opened.valid() && fstatfs(opened.get(), &info) == 0 && info.f_type == TMPFS_MAGIC &&
                    fcntl(opened.get(), F_OFD_SETLK, &lock) == 0;
  return opened;
}

absl::Status PublishShmLink(const std::string& path, const ShmLink& link) {
  const std::string text = Format(link);
  if (symlink(text.c_str(), path.c_str()) == 0) return absl::OkStatus();
  if (errno != EEXIST) return absl::ErrnoToStatus(errno, absl::StrCat("cannot create ", path));
  const absl::StatusOr<ShmLink> old = ReadAnyLink(path);
  if (absl::IsFailedPrecondition(old.status())) return absl::AlreadyExistsError(old.status().message());
  if (!old.ok() && !absl::IsNotFound(old.status())) return old.status();
  if (old.ok() && IsLeftover(path, *old)) RemoveShmLink(path, *old);
  if (symlink(text.c_str(), path.c_str()) == 0) return absl::OkStatus();
  if (old.ok()) RONDA_RETURN_IF_ERROR(CheckNamespace(path, *old));
  return absl::AlreadyExistsError(absl::StrCat(
      path, " exists: another job has the same id, or a killed job left it behind, and then it can be removed"));
}

absl::StatusOr<ShmLink> ReadShmLink(const std::string& path) {
  RONDA_ASSIGN_OR_RETURN(ShmLink link, ReadAnyLink(path));
  RONDA_RETURN_IF_ERROR(CheckNamespace(path, link));
  return link;
}

bool IsLeftover(const std::string& path, const ShmLink& link) {
  if (link.pid_namespace != PidNamespace()) return link.is_locked && IsReleased(path.substr(0, path.rfind('/')), link);
  if (link.creator.pid == 0 || !IsAlive(link.creator)) return true;
  if (link.descriptor < 0) return false;
  std::error_code error;
  const std::string target = std::filesystem::read_symlink(link.Target(), error).string();
  if (error) return error == std::errc::no_such_file_or_directory;
  // The path of a job's memory ends in the name of the link, even if they are in different folders.
  return !absl::EndsWith(absl::StripSuffix(target, " (deleted)"), path.substr(path.rfind('/')));
}

void RemoveShmLeftovers(const std::string& folder) {
  std::error_code error;
  for (std::filesystem::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    const std::string path = it->path().string();
    if (!absl::StartsWith(path, absl::StrCat(folder, ShmNameOf("", 0)))) continue;
    const absl::StatusOr<ShmLink> link = ReadAnyLink(path);
    if (link.ok() && IsLeftover(path, *link)) RemoveShmLink(path, *link);
  }
}

void RemoveShmLink(const std::string& path, const ShmLink& link) {
  const absl::StatusOr<ShmLink> current = ReadAnyLink(path);
  if (current.ok() && Format(*current) == Format(link)) unlink(path.c_str());
}

}  // namespace ronda
