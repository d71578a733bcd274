// SPDX-License-Identifier: Apache-2.0

#include "runtime/net/message_streams.h"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "runtime/base/mutex.h"
#include "runtime/base/plugin_search.h"
#include "runtime/base/status_macros.h"
#include "runtime/net/loopback_users.h"
#include "runtime/net/sockets.h"

namespace ronda {
namespace {

MessageStreamOwner& Owner(void* owner) { return *static_cast<MessageStreamOwner*>(owner); }

constexpr ronda_hosts_events kEvents = {
    .message = [](void* owner, const void* data,
                  size_t size) { Owner(owner).OnMessage(absl::string_view(static_cast<const char*>(data), size)); },
    .reads_end = [](void* owner) { Owner(owner).OnReadsEnd(); },
    .written = [](void* owner) { Owner(owner).OnWritten(); },
    .cancelled = [](void* owner) { Owner(owner).OnCancelled(); },
    .closed =
        [](void* owner, int code, const char* text, size_t size) {
          Owner(owner).OnClosed(absl::Status(static_cast<absl::StatusCode>(code), absl::string_view(text, size)));
        }};

ronda_hosts_limits ToPlugin(const MessageLimits& limits) {
  return {.max_message_bytes = limits.max_message_bytes ? static_cast<int64_t>(*limits.max_message_bytes) : -1};
}

// Returns the address in a gRPC URI such as "ipv4:127.0.0.1:4711" or "ipv6:%5B::1%5D:4711".
std::string AddressOfClient(absl::string_view uri) {
  std::string address(uri.substr(uri.find(':') + 1));
  for (const auto& [code, character] : {std::pair("%5B", "["), {"%5D", "]"}, {"%25", "%"}}) {
    address = absl::StrReplaceAll(address, {{code, character}});
  }
  return address;
}

// A system call that gRPC needs. Without it, gRPC aborts the process, or no connection works.
struct NeededCall {
  const char* name;
  void (*make)();  // has no effect, because it passes no valid descriptor
};

constexpr NeededCall kNeededCalls[] = {
    {"epoll_ctl",
     [] {
       epoll_event event = {};
       epoll_ctl(-1, EPOLL_CTL_ADD, -1, &event);
     }},
    {"epoll_wait",
     [] {
       epoll_event event = {};
       epoll_wait(-1, &event, 1, 0);
     }},
    {"ppoll",
     [] {
       const timespec no_time = {};
       ppoll(nullptr, 0, &no_time, nullptr);
     }},
    {"accept4", [] { accept4(-1, nullptr, nullptr, 0); }},
    {"getpeername", [] { getpeername(-1, nullptr, nullptr); }},
    {"getsockopt", [] { getsockopt(-1, SOL_SOCKET, SO_ERROR, nullptr, nullptr); }},
    {"setsockopt", [] { setsockopt(-1, SOL_SOCKET, SO_REUSEADDR, nullptr, 0); }},
    {"sendmsg", [] { [[maybe_unused]] const ssize_t sent = sendmsg(-1, nullptr, 0); }},
    {"recvmsg", [] { [[maybe_unused]] const ssize_t received = recvmsg(-1, nullptr, 0); }},
};

// Tries all system calls that gRPC needs, because a container's security profile may block some of them. The calls have
// no effect: an allowed call only fails because its descriptor is invalid.
absl::Status TryNeededCalls() {
  for (const auto& [name, make] : kNeededCalls) {
    errno = 0;
    make();
    if (errno != EPERM && errno != EACCES && errno != ENOSYS) continue;
    return absl::FailedPreconditionError(
        absl::StrCat("the system refuses ", name, " (", strerror(errno),
                     "), which a job with connections needs: let the profile of the container allow it (docker run "
                     "--security-opt seccomp=FILE), or run the job on one host, without RONDA_BACKEND=tcp"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<const ronda_hosts_plugin*> LoadHostsPlugin(const std::string& path) {
  RONDA_RETURN_IF_ERROR(TryNeededCalls());
  const PluginDescription plugin = {.kind = "plugin for several hosts",
                                    .file = "libronda_hosts.so",
                                    .variable = "RONDA_HOSTS_PLUGIN",
                                    .needs = "Debian's libgrpc++1.51",
                                    .symbol = RONDA_HOSTS_PLUGIN_SYMBOL,
                                    .version = RONDA_HOSTS_PLUGIN_VERSION};
  RONDA_ASSIGN_OR_RETURN(const void* const table, LoadPlugin(plugin, path));
  return static_cast<const ronda_hosts_plugin*>(table);
}

void MessageStream::Open(MessageStreamOwner* owner) { plugin_->open(stream_, &kEvents, owner); }
void MessageStream::Write(absl::string_view message) { plugin_->write(stream_, message.data(), message.size()); }
void MessageStream::End(const absl::Status& status) {
  plugin_->end(stream_, static_cast<int>(status.code()), status.message().data(), status.message().size());
}

absl::StatusOr<std::unique_ptr<MessageServer>> MessageServer::Start(Options options) {
  RONDA_ASSIGN_OR_RETURN(const ronda_hosts_plugin* const plugin, LoadHostsPlugin(options.plugin));
  std::unique_ptr<MessageServer> server(new MessageServer(plugin, std::move(options)));
  RONDA_RETURN_IF_ERROR(server->Listen());
  return server;
}

absl::Status MessageServer::Listen() {
  const bool is_local = !options_.socket.empty();
  RONDA_ASSIGN_OR_RETURN(UniqueFd listener, is_local ? ListenOnPath(options_.socket) : ListenAt(options_.endpoint));
  if (!is_local) {
    RONDA_ASSIGN_OR_RETURN(port_, BoundPort(listener.get()));
  }
  const auto accepted = [](void* context, const char* method, const char* client, ronda_hosts_stream* stream) {
    const auto* const self = static_cast<const MessageServer*>(context);
    self->options_.accept(method, MessageStream(self->plugin_, stream, self->limiter_.get(), AddressOfClient(client)));
  };
  const ronda_hosts_limits limits = ToPlugin(options_.limits);
  server_ = plugin_->serve(&limits, accepted, this);
  if (server_ == nullptr) return absl::UnavailableError("gRPC cannot start a server");
  ConnectionLimiter::Options connections;
  connections.limit += options_.clients;
  // Clients of a Unix domain socket need not authenticate, because only this user's processes can connect to it.
  if (!is_local) connections.until = ConnectionLimiter::Until::kAuthenticated;
  connections.hand_over = [this](UniqueFd socket) { HandOver(std::move(socket)); };
  RONDA_ASSIGN_OR_RETURN(limiter_, ConnectionLimiter::Create(std::move(listener), std::move(connections)));
  limiter_->Start();
  return absl::OkStatus();
}

void MessageServer::HandOver(UniqueFd socket) const {
  if (options_.callers == Callers::kThisUser && !CheckCaller(socket.get()).ok()) {
    // close() would not end the connection, because the limiter holds another descriptor for it.
    shutdown(socket.get(), SHUT_RDWR);
    return;
  }
  plugin_->adopt(server_, socket.Release());
}

MessageServer::~MessageServer() {
  if (limiter_ != nullptr) limiter_->Stop();
  if (server_ != nullptr) plugin_->shut_down(server_, absl::ToInt64Milliseconds(options_.grace));
}

namespace {

// Returns the gRPC target for the endpoint. gRPC tries the endpoint's addresses one after the other.
std::string TargetOf(const Endpoint& endpoint) {
  const char* const scheme = endpoint.family == AddressFamily::kIPv6 ? "ipv6:" : "ipv4:";
  return scheme + absl::StrJoin(ByAddress(endpoint), ",", [](std::string* target, const Endpoint& address) {
           absl::StrAppend(target, NumericText(address));
         });
}

}  // namespace

absl::StatusOr<std::unique_ptr<MessageChannel>> MessageChannel::Connect(const std::string& plugin_path,
                                                                        const Endpoint& endpoint,
                                                                        const MessageLimits& limits) {
  RONDA_ASSIGN_OR_RETURN(const ronda_hosts_plugin* const plugin, LoadHostsPlugin(plugin_path));
  const ronda_hosts_limits plugin_limits = ToPlugin(limits);
  ronda_hosts_channel* const channel = plugin->connect(TargetOf(endpoint).c_str(), &plugin_limits);
  return std::unique_ptr<MessageChannel>(new MessageChannel(plugin, channel));
}

MessageChannel::~MessageChannel() { plugin_->disconnect(channel_); }

MessageStream MessageChannel::Call(const std::string& method, Absent absent, absl::Duration timeout) {
  const int64_t timeout_ms = timeout == absl::InfiniteDuration() ? -1 : absl::ToInt64Milliseconds(timeout);
  const int waits = absent == Absent::kIsAwaited ? 1 : 0;
  return MessageStream(plugin_, plugin_->call(channel_, method.c_str(), waits, timeout_ms));
}

void MessageChannel::Cancel() { plugin_->cancel(channel_); }

namespace {

// Owns the stream of a call whose caller waits for the answer.
class WaitingCall final : public MessageStreamOwner {
 public:
  absl::StatusOr<std::string> Run(MessageStream stream, const std::string& request) {
    stream_ = std::move(stream);
    stream_->Open(this);
    stream_->Write(request);
    MutexLock lock(&mu_);
    while (!status_.has_value()) closed_.Wait(&mu_);
    if (!status_->ok()) return *status_;
    return std::move(answer_);
  }

  void OnMessage(absl::string_view answer) override { answer_ = std::string(answer); }
  void OnReadsEnd() override {}
  void OnWritten() override { stream_->End(absl::OkStatus()); }
  void OnClosed(const absl::Status& status) override {
    MutexLock lock(&mu_);
    status_ = status;
    closed_.NotifyAll();
  }

 private:
  std::optional<MessageStream> stream_;  // constant once open
  std::string answer_;                   // written only by OnMessage(), which is not called after the stream closes
  Mutex mu_;
  CondVar closed_;
  std::optional<absl::Status> status_ ABSL_GUARDED_BY(mu_);
};

}  // namespace

absl::StatusOr<std::string> CallOnce(MessageStream stream, const std::string& request) {
  return WaitingCall().Run(std::move(stream), request);
}

}  // namespace ronda
