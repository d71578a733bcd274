// SPDX-License-Identifier: Apache-2.0

#include "runtime/tcp/tcp_mesh.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>

#include <algorithm>
#include <list>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/clock.h"
#include "runtime/base/logging.h"
#include "runtime/base/peer.h"
#include "runtime/base/poll.h"
#include "runtime/base/status_macros.h"
#include "runtime/net/loopback_users.h"
#include "runtime/net/sockets.h"
#include "runtime/tcp/tcp_listener.h"
#include "runtime/tcp/tcp_messages.h"

namespace ronda {
namespace {

// The interval at which a waiting rank checks the job's failure and its timeouts.
constexpr absl::Duration kRound = absl::Milliseconds(50);
constexpr absl::Duration kPauseBetweenCalls = absl::Milliseconds(100);
// The pause before this rank accepts callers again, after the machine had no socket left for a caller.
constexpr absl::Duration kPauseBeforeAccept = absl::Milliseconds(100);
// How many unauthenticated callers may be connected at the same time, in addition to the missing ranks.
constexpr size_t kRoomForCallers = 64;
// How many callers this rank accepts before it reads what they have sent. With more, some callers would be dropped at
// the limit before this rank had read anything from them.
constexpr int kCallersPerRound = static_cast<int>(kRoomForCallers);
constexpr int kMostComplaints = 5;

constexpr char kAdvice[] =
    "; do the hosts reach each other there, at any port? RONDA_NETWORK_INTERFACE names the network interface to use";

absl::Status SystemError(absl::string_view what, int error) {
  return absl::UnavailableError(absl::StrCat(what, ": ", strerror(error)));
}

// `purpose` is what the connections are for, for example "data".
absl::Status TooManySockets(int error, absl::string_view purpose) {
  return absl::ResourceExhaustedError(
      absl::StrCat("cannot open a socket: ", strerror(error), ": a rank has a connection to each rank with which it ",
                   "exchanges ", purpose, " over TCP; raise the limit on open files (ulimit -n)"));
}

// Returns " (TEXT)", or "" if there is no error.
std::string InParentheses(const absl::Status& error) {
  return error.ok() ? "" : absl::StrCat(" (", error.message(), ")");
}

// Returns the position of `rank` in the level, or nullopt if the rank is not a member.
std::optional<size_t> PositionIn(const TcpLevel& level, RankId rank) {
  const auto it = std::find(level.ranks.begin(), level.ranks.end(), rank);
  if (it == level.ranks.end()) return std::nullopt;
  return static_cast<size_t>(it - level.ranks.begin());
}

// Returns whether rank `self` needs a connection to `rank`.
bool IsPartner(const TcpLevel& level, RankId rank, RankId self) {
  const auto& partners = level.partners;
  return rank != self && (partners.empty() || std::find(partners.begin(), partners.end(), rank) != partners.end());
}

// Sets the socket's options. Keepalive prevents network devices between the hosts from dropping connections that are
// idle for hours.
void SetUp(int fd) {
  const auto set = [fd](int level, int option, int value) { setsockopt(fd, level, option, &value, sizeof(value)); };
  // TCP_NODELAY sends small messages without waiting for more data. The buffer sizes stay unset, because the kernel's
  // automatic sizes can exceed what a program may request.
  set(IPPROTO_TCP, TCP_NODELAY, 1);
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, 60);
  set(IPPROTO_TCP, TCP_KEEPINTVL, 10);
}

// Reads until `text` has `wanted` bytes, and returns whether it has. Does not read beyond them, because the next bytes
// may be data.
absl::StatusOr<bool> ReadUpTo(int fd, size_t wanted, std::string* text) {
  const size_t before = text->size();
  text->resize(wanted);
  const ssize_t got = recv(fd, text->data() + before, wanted - before, 0);
  text->resize(before + static_cast<size_t>(std::max<ssize_t>(got, 0)));
  if (got > 0) return text->size() == wanted;
  if (got == 0) return absl::UnavailableError("the other end has closed the connection");
  if (errno == EAGAIN || errno == EINTR) return false;
  return SystemError("cannot read", errno);
}

// Writes a few bytes, for which the send buffer of a new connection always has room.
absl::Status WriteAll(int fd, absl::string_view text) {
  const ssize_t sent = send(fd, text.data(), text.size(), MSG_NOSIGNAL);
  if (sent == static_cast<ssize_t>(text.size())) return absl::OkStatus();
  return SystemError("cannot write", sent < 0 ? errno : EAGAIN);
}

// This rank's call to another rank, which is retried until they are connected.
class OutgoingCall {
 public:
  OutgoingCall(const TcpMeshOptions& options, const TcpConnectionId& id) : options_(options), id_(id) {}

  const TcpConnectionId& id() const { return id_; }
  bool is_over() const { return state_ == State::kOver; }
  const absl::Status& last_error() const { return last_error_; }
  UniqueFd TakeSocket() { return std::move(socket_); }

  pollfd Awaited() const {
    return {.fd = is_over() ? -1 : socket_.get(),
            .events = static_cast<int16_t>(state_ == State::kConnecting ? POLLOUT : POLLIN),
            .revents = 0};
  }

  // Calls the other rank if no call is in progress and the last call was long enough ago. Errors: RESOURCE_EXHAUSTED if
  // the process has no free file descriptor.
  absl::Status CallIfDue() {
    const absl::Duration now = MonotonicTime();
    if (MayHangUp() && now >= end_) HangUp(absl::DeadlineExceededError(SilenceSoFar()));
    if (is_over() || socket_.valid() || now < due_) return absl::OkStatus();
    RONDA_ASSIGN_OR_RETURN(caller_, TcpCaller::Create(&options_.job, id_));
    RONDA_ASSIGN_OR_RETURN(const SocketAddress address, ToSocketAddress(callee()));
    UniqueFd socket(::socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!socket.valid() && errno == EMFILE) return TooManySockets(errno, options_.purpose);
    if (!socket.valid()) {
      HangUp(SystemError("cannot open a socket", errno));
      return absl::OkStatus();
    }
    socket_ = std::move(socket);
    state_ = State::kConnecting;
    end_ = now + options_.call_timeout;
    if (connect(socket_.get(), address.get(), address.bytes) != 0 && errno != EINPROGRESS) {
      HangUp(SystemError("cannot connect", errno));
    }
    return absl::OkStatus();
  }

  // Handles an event on the socket.
  void Advance() {
    const absl::Status status = TryToAdvance();
    if (!status.ok()) HangUp(status);
  }

 private:
  enum class State { kConnecting, kAwaitingChallenge, kAwaitingWelcome, kOver };

  // A rank that has sent its hello must not hang up, because the other end may already use the connection.
  bool MayHangUp() const {
    return socket_.valid() && (state_ == State::kConnecting || state_ == State::kAwaitingChallenge);
  }

  absl::string_view SilenceSoFar() const {
    return state_ == State::kConnecting ? "no answer"
                                        : "connected, but the listener there does not answer as a rank does";
  }

  const Endpoint& callee() const { return options_.endpoints[static_cast<size_t>(id_.callee)]; }

  void HangUp(const absl::Status& error) {
    last_error_ = error;
    socket_.Reset();
    text_.clear();
    due_ = MonotonicTime() + kPauseBetweenCalls;
  }

  absl::Status TryToAdvance() {
    if (state_ == State::kConnecting) {
      int error = 0;
      socklen_t bytes = sizeof(error);
      getsockopt(socket_.get(), SOL_SOCKET, SO_ERROR, &error, &bytes);
      if (error != 0) return SystemError("cannot connect", error);
      state_ = State::kAwaitingChallenge;
      return absl::OkStatus();
    }
    const bool is_challenge = state_ == State::kAwaitingChallenge;
    RONDA_ASSIGN_OR_RETURN(const bool is_there,
                           ReadUpTo(socket_.get(), is_challenge ? kTcpChallengeBytes : kTcpWelcomeBytes, &text_));
    if (!is_there) return absl::OkStatus();
    RONDA_RETURN_IF_ERROR(is_challenge ? WriteAll(socket_.get(), caller_->Answer(text_)) : caller_->Check(text_));
    state_ = is_challenge ? State::kAwaitingWelcome : State::kOver;
    text_.clear();
    return absl::OkStatus();
  }

  const TcpMeshOptions& options_;
  const TcpConnectionId id_;
  State state_ = State::kConnecting;
  UniqueFd socket_;
  std::optional<TcpCaller> caller_;
  std::string text_;                                // received so far
  absl::Duration due_ = -absl::InfiniteDuration();  // of the next call
  absl::Duration end_;                              // of the current call
  absl::Status last_error_;
};

// A call from a caller that has not authenticated yet.
struct IncomingCall {
  UniqueFd socket;
  TcpCallee callee;
  absl::Duration end;  // when this rank gives up
  std::string text;    // received so far
};

// Establishes all connections of one rank.
class Mesh {
 public:
  // `listener` may be nullptr if no other rank calls this rank.
  Mesh(const TcpListener* listener, const TcpMeshOptions& options, const std::vector<TcpLevel>& levels)
      : listener_(listener), options_(options), levels_(levels) {}

  absl::Status Connect();
  std::vector<std::unique_ptr<PointToPoint>> TakeMessages();
  // Returns the partners in level `level` to which this rank has no connection.
  std::vector<RankId> Absent(size_t level) const;

 private:
  void Plan();
  absl::Status Round();
  absl::Status Accept();
  // Handles the errno of a failed accept4(). Returns an error if this rank has to give up.
  absl::Status AcceptError(int error);
  // Reads the caller's message so far and returns whether the call is over.
  absl::StatusOr<bool> Hear(IncomingCall& call);
  absl::Status Admit(IncomingCall& call, const TcpCallee::Welcome& welcome);
  void HearAll(absl::Span<const pollfd> polled);
  void Complain(const absl::Status& why);
  absl::Status DeadlineError() const;
  UniqueFd* SocketOf(const TcpConnectionId& id, RankId peer);
  size_t Missing() const;

  const TcpListener* const listener_;
  const TcpMeshOptions& options_;
  const std::vector<TcpLevel>& levels_;
  std::vector<std::vector<UniqueFd>> sockets_;  // by level and position
  std::list<OutgoingCall> outgoing_;
  std::list<IncomingCall> incoming_;                        // oldest first
  absl::Status accept_error_;                               // of the last attempt to accept a caller
  absl::Duration accept_from_ = -absl::InfiniteDuration();  // when this rank accepts callers again
  int complaints_ = 0;
};

void Mesh::Plan() {
  for (const TcpLevel& level : levels_) {
    sockets_.emplace_back(level.ranks.size());
    for (const RankId rank : level.ranks) {
      if (rank < options_.rank && IsPartner(level, rank, options_.rank)) {
        outgoing_.emplace_back(options_,
                               TcpConnectionId{.level = level.number, .caller = options_.rank, .callee = rank});
      }
    }
  }
}

UniqueFd* Mesh::SocketOf(const TcpConnectionId& id, RankId peer) {
  for (size_t i = 0; i < levels_.size(); ++i) {
    const std::optional<size_t> position = PositionIn(levels_[i], peer);
    const bool is_partner = position.has_value() && IsPartner(levels_[i], peer, options_.rank);
    if (levels_[i].number == id.level && is_partner) return &sockets_[i][*position];
  }
  return nullptr;
}

std::vector<RankId> Mesh::Absent(size_t level) const {
  std::vector<RankId> absent;
  const std::vector<RankId>& ranks = levels_[level].ranks;
  for (size_t position = 0; position < ranks.size(); ++position) {
    const bool is_needed = IsPartner(levels_[level], ranks[position], options_.rank);
    if (is_needed && !sockets_[level][position].valid()) absent.push_back(ranks[position]);
  }
  return absent;
}

size_t Mesh::Missing() const {
  size_t missing = 0;
  for (size_t i = 0; i < levels_.size(); ++i) missing += Absent(i).size();
  return missing;
}

absl::Status Mesh::Connect() {
  Plan();
  const absl::Duration end = MonotonicTime() + options_.timeout;
  while (Missing() > 0) {
    if (options_.job_failure != nullptr) RONDA_RETURN_IF_ERROR(options_.job_failure());
    if (MonotonicTime() >= end) return DeadlineError();
    RONDA_RETURN_IF_ERROR(Round());
  }
  return absl::OkStatus();
}

absl::Status Mesh::Round() {
  for (OutgoingCall& call : outgoing_) RONDA_RETURN_IF_ERROR(call.CallIfDue());
  // poll() ignores a negative descriptor.
  const bool may_accept = listener_ != nullptr && MonotonicTime() >= accept_from_;
  const int listener = may_accept ? listener_->fd() : -1;
  std::vector<pollfd> polled = {{.fd = listener, .events = POLLIN, .revents = 0}};
  for (const OutgoingCall& call : outgoing_) polled.push_back(call.Awaited());
  for (const IncomingCall& call : incoming_) {
    polled.push_back({.fd = call.socket.get(), .events = POLLIN, .revents = 0});
  }
  RONDA_RETURN_IF_ERROR(PollDescriptors(absl::MakeSpan(polled), kRound).status());
  size_t next = 1;
  for (OutgoingCall& call : outgoing_) {
    if (polled[next++].revents == 0) continue;
    call.Advance();
    if (call.is_over()) *SocketOf(call.id(), call.id().callee) = call.TakeSocket();
  }
  HearAll(absl::MakeSpan(polled).subspan(next));
  return polled[0].revents != 0 ? Accept() : absl::OkStatus();
}

void Mesh::HearAll(absl::Span<const pollfd> polled) {
  size_t next = 0;
  for (auto call = incoming_.begin(); call != incoming_.end();) {
    const bool has_spoken = polled[next++].revents != 0;
    const absl::StatusOr<bool> is_over = has_spoken ? Hear(*call) : absl::StatusOr<bool>(false);
    // Logs no warning for a caller that has sent nothing: it may be a rank that has given up and called again.
    if (!is_over.ok() && !call->text.empty()) Complain(is_over.status());
    const bool drop = !is_over.ok() || *is_over || MonotonicTime() >= call->end;
    call = drop ? incoming_.erase(call) : std::next(call);
  }
}

absl::Status Mesh::Accept() {
  const size_t room = Missing() + kRoomForCallers;
  for (int i = 0; i < kCallersPerRound; ++i) {
    UniqueFd socket(accept4(listener_->fd(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket.valid()) return AcceptError(errno);
    accept_error_ = absl::OkStatus();
    if (options_.job.secret.empty()) {
      if (const absl::Status status = CheckCaller(socket.get()); !status.ok()) {
        Complain(status);
        continue;
      }
    }
    RONDA_ASSIGN_OR_RETURN(TcpCallee callee, TcpCallee::Create(&options_.job, options_.rank));
    if (!WriteAll(socket.get(), callee.challenge()).ok()) continue;
    if (incoming_.size() >= room) incoming_.pop_front();
    incoming_.push_back({.socket = std::move(socket),
                         .callee = std::move(callee),
                         .end = MonotonicTime() + options_.caller_timeout,
                         .text = {}});
  }
  return absl::OkStatus();
}

absl::Status Mesh::AcceptError(int error) {
  if (error == EMFILE) return TooManySockets(error, options_.purpose);
  if (!IsShortOfSockets(error)) return absl::OkStatus();
  // The shortage is the machine's, and may pass.
  accept_error_ = SystemError("cannot accept a connection", error);
  accept_from_ = MonotonicTime() + kPauseBeforeAccept;
  return absl::OkStatus();
}

absl::StatusOr<bool> Mesh::Hear(IncomingCall& call) {
  RONDA_ASSIGN_OR_RETURN(const bool is_there, ReadUpTo(call.socket.get(), kTcpHelloBytes, &call.text));
  if (!is_there) return false;
  RONDA_ASSIGN_OR_RETURN(const TcpCallee::Welcome welcome, call.callee.Check(call.text));
  RONDA_RETURN_IF_ERROR(Admit(call, welcome));
  return true;
}

absl::Status Mesh::Admit(IncomingCall& call, const TcpCallee::Welcome& welcome) {
  const RankId caller = welcome.id.caller;
  UniqueFd* const socket = caller > options_.rank ? SocketOf(welcome.id, caller) : nullptr;
  if (socket == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("rank ", caller, " has called rank ", options_.rank, " for level ", welcome.id.level));
  }
  RONDA_RETURN_IF_ERROR(WriteAll(call.socket.get(), welcome.text));
  // Replaces an existing connection: its caller must have lost it, or it would not have called again.
  *socket = std::move(call.socket);
  return absl::OkStatus();
}

void Mesh::Complain(const absl::Status& why) {
  if (complaints_++ >= kMostComplaints) return;
  Log(LogLevel::kWarning, options_.rank,
      absl::StrCat("dropped a connection to ", NumericText(listener_->endpoint()), ": ", why.message()));
}

absl::Status Mesh::DeadlineError() const {
  std::string text = absl::StrCat(ToString(options_.peers[static_cast<size_t>(options_.rank)]),
                                  " has no connections for ", options_.purpose);
  for (const OutgoingCall& call : outgoing_) {
    if (call.is_over()) continue;
    const auto callee = static_cast<size_t>(call.id().callee);
    absl::StrAppend(&text, " to ", ToString(options_.peers[callee]), " at ", NumericText(options_.endpoints[callee]),
                    InParentheses(call.last_error()), ",");
    break;
  }
  std::vector<RankId> awaited;
  for (size_t i = 0; i < levels_.size(); ++i) {
    for (const RankId rank : Absent(i)) {
      if (rank > options_.rank) awaited.push_back(rank);
    }
  }
  std::sort(awaited.begin(), awaited.end());
  awaited.erase(std::unique(awaited.begin(), awaited.end()), awaited.end());
  if (!awaited.empty()) {
    absl::StrAppend(&text, " from ", NameRanks(awaited), ", which should have called ",
                    NumericText(listener_->endpoint()), InParentheses(accept_error_), ",");
  }
  return absl::DeadlineExceededError(absl::StrCat(text, " within ", absl::FormatDuration(options_.timeout), kAdvice));
}

std::vector<std::unique_ptr<PointToPoint>> Mesh::TakeMessages() {
  std::vector<std::unique_ptr<PointToPoint>> messages;
  for (size_t i = 0; i < levels_.size(); ++i) {
    for (const UniqueFd& socket : sockets_[i]) {
      if (socket.valid()) SetUp(socket.get());
    }
    const auto self = static_cast<RankId>(*PositionIn(levels_[i], options_.rank));
    messages.push_back(std::make_unique<TcpMessages>(self, std::move(sockets_[i])));
  }
  return messages;
}

}  // namespace

absl::StatusOr<std::vector<std::unique_ptr<PointToPoint>>> ConnectTcp(const TcpListener& listener,
                                                                      const TcpMeshOptions& options,
                                                                      const std::vector<TcpLevel>& levels) {
  Mesh mesh(&listener, options, levels);
  RONDA_RETURN_IF_ERROR(mesh.Connect());
  return mesh.TakeMessages();
}

TcpPartners ConnectTcpPartners(const TcpListener* listener, const TcpMeshOptions& options, const TcpLevel& level) {
  const std::vector<TcpLevel> levels = {level};
  Mesh mesh(listener, options, levels);
  TcpPartners partners;
  partners.absence = mesh.Connect();
  if (!partners.absence.ok()) partners.absent = mesh.Absent(0);
  partners.messages = std::move(mesh.TakeMessages().front());
  return partners;
}

}  // namespace ronda
