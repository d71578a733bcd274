// SPDX-License-Identifier: Apache-2.0

#include "client/rank_claim.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "runtime/base/unique_fd.h"
#include "runtime/monitor/peer_monitor.h"

namespace ronda {
namespace {

struct Address {
  sockaddr_un name = {};
  socklen_t size = 0;

  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&name); }
};

// Returns the job's name, or else the address at which its ranks meet, or "" if it has neither.
std::string NameOf(const JobEnvironment& job) {
  if (!job.job_id.empty()) return job.job_id;
  if (job.master_address.empty()) return "";
  return absl::StrCat(job.master_address, ":", job.master_port);
}

// The socket name contains at most this many bytes of the job's name or address. A longer address is truncated at the
// front, because the port at its end differs between jobs.
constexpr size_t kMostOfName = 64;

std::string EndOf(const std::string& name) {
  return name.size() <= kMostOfName ? name : name.substr(name.size() - kMostOfName);
}

// The socket name begins with a zero byte, so the socket is not in the file system.
Address AddressOf(const JobEnvironment& job) {
  const std::string text =
      absl::StrCat("ronda-rank-", getuid(), "-", job.epoch, "-", job.rank, "-", EndOf(NameOf(job)));
  Address address;
  address.name.sun_family = AF_UNIX;
  std::memcpy(address.name.sun_path + 1, text.data(), text.size());
  address.size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + text.size());
  return address;
}

int MakeSocket() { return socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0); }

// Returns the process that listens at `address`, or nullopt if it has exited or is in another namespace.
std::optional<pid_t> HolderOf(const Address& address) {
  const UniqueFd caller(MakeSocket());
  ucred holder = {};
  socklen_t size = sizeof(holder);
  if (!caller.valid() || connect(caller.get(), address.get(), address.size) != 0) return std::nullopt;
  if (getsockopt(caller.get(), SOL_SOCKET, SO_PEERCRED, &holder, &size) != 0 || holder.pid <= 0) return std::nullopt;
  return holder.pid;
}

// Returns whether `ancestor` started `process`, directly or through other processes.
bool IsAncestor(pid_t ancestor, pid_t process) {
  std::optional<ProcessStat> stat = ReadProcessStat(process);
  for (; stat.has_value() && stat->parent > 1; stat = ReadProcessStat(stat->parent)) {
    if (stat->parent == ancestor) return true;
  }
  return false;
}

constexpr absl::string_view kKeepChildrenOut =
    "Do not initialise Ronda in processes that a rank starts (in Python: begin the main script with "
    "if __name__ == \"__main__\"), or start them without these variables";

absl::Status AlreadyClaimed(const JobEnvironment& job, const Address& address) {
  const std::optional<pid_t> holder = HolderOf(address);
  if (holder.has_value() && IsAncestor(*holder, getpid())) {
    return absl::FailedPreconditionError(
        absl::StrCat("this process (", getpid(), ") was started by rank ", job.rank, " (process ", *holder,
                     "), and is no rank itself: it has inherited that rank's variables, which ", job.source,
                     " has set. ", kKeepChildrenOut));
  }
  if (holder.has_value() && IsAncestor(getpid(), *holder)) {
    return absl::FailedPreconditionError(
        absl::StrCat("process ", *holder, ", which this process (", getpid(), ") has started, has become rank ",
                     job.rank, " of this job before it could: it has inherited this rank's variables, which ",
                     job.source, " has set. ", kKeepChildrenOut));
  }
  const std::string other = holder.has_value() ? absl::StrCat("process ", *holder) : "another process";
  return absl::FailedPreconditionError(absl::StrCat(
      "rank ", job.rank, " of this job is ", other, " already, and this process (", getpid(),
      ") has been told the same place, by ", job.source,
      ": start each rank once. Or two jobs have the same address and port: end both, as their ranks may be mixed, and "
      "give each a port of its own"));
}

}  // namespace

absl::Status RankClaim::Acquire(const JobEnvironment& job) {
  Release();
  if (job.size == 1 || NameOf(job).empty()) return absl::OkStatus();
  const Address address = AddressOf(job);
  socket_ = MakeSocket();
  // On a system without abstract sockets, the job runs without claims.
  if (::bind(socket_.load(), address.get(), address.size) == 0) {
    listen(socket_.load(), 1);  // so that a caller gets the process id
    return absl::OkStatus();
  }
  const bool is_taken = errno == EADDRINUSE;
  Release();
  return is_taken ? AlreadyClaimed(job, address) : absl::OkStatus();
}

void RankClaim::Release() {
  const int socket = socket_.exchange(-1);
  if (socket >= 0) close(socket);
}

void RankClaim::LeaveToParent() const {
  const int socket = socket_.load();
  if (socket >= 0) close(socket);
}

}  // namespace ronda
