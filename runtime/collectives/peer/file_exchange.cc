// SPDX-License-Identifier: Apache-2.0

#include "runtime/collectives/peer/file_exchange.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "runtime/base/clock.h"
#include "runtime/base/peer.h"
#include "runtime/base/status_macros.h"

namespace ronda {
namespace {

constexpr size_t kMostFiles = 2;
constexpr absl::Duration kPause = absl::Milliseconds(1);

// The data of a datagram, apart from the files.
struct Letter {
  std::array<uint8_t, 16> secret;  // the receiver's
  int32_t sender = 0;              // its position
};

// Memory for the ancillary data of one datagram.
struct Ancillary {
  alignas(cmsghdr) char data[CMSG_SPACE(kMostFiles * sizeof(int))] = {};
};

struct SocketName {
  sockaddr_un address = {};
  socklen_t size = 0;
};

// The first byte of an abstract name is zero.
SocketName NameOf(const FileExchange::Address& address) {
  SocketName name;
  name.address.sun_family = AF_UNIX;
  const size_t length = strnlen(address.name.data(), address.name.size());
  std::memcpy(name.address.sun_path + 1, address.name.data(), length);
  name.size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + length);
  return name;
}

// The message header for one letter and its files.
class Envelope {
 public:
  explicit Envelope(Letter* letter) : part_({.iov_base = letter, .iov_len = sizeof(Letter)}) {
    header_.msg_iov = &part_;
    header_.msg_iovlen = 1;
    header_.msg_control = ancillary_.data;
    header_.msg_controllen = sizeof(ancillary_.data);
  }
  Envelope(const Envelope&) = delete;
  Envelope& operator=(const Envelope&) = delete;

  msghdr* header() { return &header_; }

  void Enclose(absl::Span<const UniqueFd> files, SocketName* receiver) {
    header_.msg_name = &receiver->address;
    header_.msg_namelen = receiver->size;
    header_.msg_controllen = CMSG_SPACE(files.size() * sizeof(int));
    cmsghdr* const control = CMSG_FIRSTHDR(&header_);
    control->cmsg_level = SOL_SOCKET;
    control->cmsg_type = SCM_RIGHTS;
    control->cmsg_len = CMSG_LEN(files.size() * sizeof(int));
    for (size_t i = 0; i < files.size(); ++i) {
      const int file = files[i].get();
      std::memcpy(CMSG_DATA(control) + i * sizeof(int), &file, sizeof(int));
    }
  }

  // Returns the received files.
  std::vector<UniqueFd> Open() {
    std::vector<UniqueFd> files;
    for (cmsghdr* control = CMSG_FIRSTHDR(&header_); control != nullptr; control = CMSG_NXTHDR(&header_, control)) {
      if (control->cmsg_level != SOL_SOCKET || control->cmsg_type != SCM_RIGHTS) continue;
      const size_t count = (control->cmsg_len - CMSG_LEN(0)) / sizeof(int);
      for (size_t i = 0; i < count; ++i) {
        int file = -1;
        std::memcpy(&file, CMSG_DATA(control) + i * sizeof(int), sizeof(int));
        files.emplace_back(file);
      }
    }
    return files;
  }

 private:
  iovec part_;
  Ancillary ancillary_;
  msghdr header_ = {};
};

// Alternates between sending and receiving the files of one exchange, because a rank whose socket is full accepts no
// more datagrams until it receives some.
class Turns {
 public:
  Turns(int socket, absl::Span<const UniqueFd> files, absl::Span<const FileExchange::Address> addresses,
        absl::Span<const RankId> ranks, int self)
      : socket_(socket), files_(files), addresses_(addresses), ranks_(ranks), self_(self), received_(addresses.size()) {
    for (int i = 0; i < static_cast<int>(addresses.size()); ++i) {
      if (i != self) unsent_.push_back(i);
    }
  }

  bool is_done() const { return unsent_.empty() && !Missing().has_value(); }

  // Returns the position of a rank whose files have not arrived.
  std::optional<int> Missing() const {
    for (size_t i = 0; i < received_.size(); ++i) {
      if (static_cast<int>(i) != self_ && received_[i].empty()) return static_cast<int>(i);
    }
    return std::nullopt;
  }
  int FirstUnsent() const { return unsent_.front(); }

  absl::Status Advance() {
    RONDA_RETURN_IF_ERROR(Send());
    return Receive();
  }

  std::vector<std::vector<UniqueFd>> Take() { return std::move(received_); }

 private:
  absl::Status Send() {
    while (!unsent_.empty()) {
      const FileExchange::Address& address = addresses_[static_cast<size_t>(unsent_.back())];
      Letter letter = {.secret = address.secret, .sender = self_};
      SocketName receiver = NameOf(address);
      Envelope envelope(&letter);
      envelope.Enclose(files_, &receiver);
      if (sendmsg(socket_, envelope.header(), MSG_DONTWAIT | MSG_NOSIGNAL) < 0) {
        // ETOOMANYREFS: too many of this user's files are in flight. The error passes once the receivers have received
        // them.
        if (errno == EAGAIN || errno == ENOBUFS || errno == EINTR || errno == ETOOMANYREFS) return absl::OkStatus();
        return absl::ErrnoToStatus(errno, absl::StrCat("sending the file of a GPU's memory to rank ",
                                                       ranks_[static_cast<size_t>(unsent_.back())],
                                                       ", which must be in the same network namespace (sendmsg)"));
      }
      unsent_.pop_back();
    }
    return absl::OkStatus();
  }

  // Receives a limited number of letters, because another program may keep sending them.
  absl::Status Receive() {
    for (size_t i = 0; i < 2 * received_.size(); ++i) {
      Letter letter;
      Envelope envelope(&letter);
      const ssize_t got = recvmsg(socket_, envelope.header(), MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
      if (got < 0) {
        if (errno == EAGAIN || errno == EINTR) return absl::OkStatus();
        return absl::ErrnoToStatus(errno, "receiving the file of a GPU's memory from another rank (recvmsg)");
      }
      std::vector<UniqueFd> files = envelope.Open();
      const bool is_mine = got == sizeof(Letter) && letter.secret == addresses_[static_cast<size_t>(self_)].secret;
      if (!is_mine || letter.sender < 0 || letter.sender >= static_cast<int>(received_.size())) continue;
      if ((envelope.header()->msg_flags & MSG_CTRUNC) != 0 || files.empty()) {
        return absl::ResourceExhaustedError(absl::StrCat("cannot receive the file of a GPU's memory from rank ",
                                                         ranks_[static_cast<size_t>(letter.sender)],
                                                         ": this process may not open more files (ulimit -n)"));
      }
      std::vector<UniqueFd>& of_sender = received_[static_cast<size_t>(letter.sender)];
      if (of_sender.empty()) of_sender = std::move(files);
    }
    return absl::OkStatus();
  }

  const int socket_;
  const absl::Span<const UniqueFd> files_;
  const absl::Span<const FileExchange::Address> addresses_;
  const absl::Span<const RankId> ranks_;
  const int self_;
  std::vector<int> unsent_;  // positions
  std::vector<std::vector<UniqueFd>> received_;
};

absl::StatusOr<std::vector<UniqueFd>> CopiesOf(absl::Span<const UniqueFd> files) {
  std::vector<UniqueFd> copies;
  for (const UniqueFd& file : files) {
    copies.emplace_back(fcntl(file.get(), F_DUPFD_CLOEXEC, 0));
    if (!copies.back().valid()) return absl::ErrnoToStatus(errno, "copying a file (fcntl)");
  }
  return copies;
}

}  // namespace

absl::StatusOr<FileExchange> FileExchange::Open() {
  Address address;
  std::array<uint8_t, 16> random;
  if (getrandom(random.data(), random.size(), 0) != static_cast<ssize_t>(random.size()) ||
      getrandom(address.secret.data(), address.secret.size(), 0) != static_cast<ssize_t>(address.secret.size())) {
    return absl::ErrnoToStatus(errno, "cannot get random numbers from the system (getrandom)");
  }
  char* text = address.name.data() + std::snprintf(address.name.data(), address.name.size(), "ronda-peer-");
  for (const uint8_t byte : random) text += std::snprintf(text, 3, "%02x", static_cast<unsigned>(byte));
  UniqueFd socket(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!socket.valid()) return absl::ErrnoToStatus(errno, "cannot make a socket for files (socket)");
  const SocketName name = NameOf(address);
  if (bind(socket.get(), reinterpret_cast<const sockaddr*>(&name.address), name.size) != 0) {
    return absl::ErrnoToStatus(errno, "cannot name a socket for files (bind)");
  }
  return FileExchange(std::move(socket), address);
}

absl::StatusOr<std::vector<std::vector<UniqueFd>>> FileExchange::Exchange(absl::Span<const UniqueFd> files,
                                                                          absl::Span<const Address> addresses,
                                                                          absl::Span<const RankId> ranks, int self,
                                                                          const Wait& wait) const {
  Turns turns(socket_.get(), files, addresses, ranks, self);
  const absl::Duration begin = MonotonicTime();
  while (true) {
    RONDA_RETURN_IF_ERROR(turns.Advance());
    if (turns.is_done()) break;
    RONDA_RETURN_IF_ERROR(wait.job_failure());
    if (MonotonicTime() - begin > wait.deadline) {
      const RankId late = ranks[static_cast<size_t>(turns.Missing().value_or(turns.FirstUnsent()))];
      return absl::DeadlineExceededError(absl::StrCat("waited ", absl::FormatDuration(wait.deadline), " for rank ",
                                                      late, " to exchange the files of the GPUs' memory"));
    }
    absl::SleepFor(kPause);
  }
  std::vector<std::vector<UniqueFd>> all = turns.Take();
  RONDA_ASSIGN_OR_RETURN(all[static_cast<size_t>(self)], CopiesOf(files));
  return all;
}

}  // namespace ronda
