// SPDX-License-Identifier: Apache-2.0

// Streams of messages between processes on any hosts, through libronda_hosts.so. The first stream loads the plugin.
#ifndef RONDA_RUNTIME_NET_MESSAGE_STREAMS_H_
#define RONDA_RUNTIME_NET_MESSAGE_STREAMS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "runtime/net/connection_limiter.h"
#include "runtime/net/endpoint.h"
#include "runtime/net/hosts_plugin.h"

namespace ronda {

// Loads the plugin for jobs on several hosts. `path` may be empty, as for LoadPlugin.
// Errors: FAILED_PRECONDITION if the system refuses a call that gRPC needs; the errors of LoadPlugin.
absl::StatusOr<const ronda_hosts_plugin*> LoadHostsPlugin(const std::string& path);

// The owner of a stream. Threads of the plugin call it: one call at a time for messages, and one for writes.
class MessageStreamOwner {
 public:
  virtual ~MessageStreamOwner() = default;
  virtual void OnMessage(absl::string_view message) = 0;
  // No message will come any more.
  virtual void OnReadsEnd() = 0;
  // The message of the last Write has been sent, or never will be; the stream accepts the next.
  virtual void OnWritten() = 0;
  // At the server's end: the client has cancelled the call, or is gone.
  virtual void OnCancelled() {}
  // The last call. At the client's end `status` is the server's result; at the server's end it is OK.
  virtual void OnClosed(const absl::Status& status) = 0;
};

// A reference to one end of a stream. The stream frees itself after it has closed, which happens some time after End,
// never before.
class MessageStream {
 public:
  // At the client's end.
  MessageStream(const ronda_hosts_plugin* plugin, ronda_hosts_stream* stream) : plugin_(plugin), stream_(stream) {}
  // At the server's end, with the address of its client.
  MessageStream(const ronda_hosts_plugin* plugin, ronda_hosts_stream* stream, ConnectionLimiter* limiter,
                std::string client)
      : plugin_(plugin), stream_(stream), limiter_(limiter), client_(std::move(client)) {}

  // Begins to read. Call once. A stream that is not wanted may be ended instead; then the owner gets no call.
  void Open(MessageStreamOwner* owner);
  // REQUIRES: End has not been called, and OnWritten has followed each earlier Write.
  void Write(absl::string_view message);
  // Announces that nothing more will be written; at the server's end, with a result for the client. Call once.
  // REQUIRES: as Write.
  void End(const absl::Status& status);

  // At the server's end: the client has authenticated, so the server no longer limits its connection. If the client has
  // already left, it is still counted as unauthenticated.
  void Authenticated() const { limiter_->Authenticated(client_); }

 private:
  const ronda_hosts_plugin* plugin_;
  ronda_hosts_stream* stream_;
  ConnectionLimiter* limiter_ = nullptr;
  std::string client_;
};

struct MessageLimits {
  std::optional<size_t> max_message_bytes = {};  // of a received message; nullopt: no limit
};

// Listens on one address, without sharing the port, or on a Unix domain socket. The Unix domain socket replaces a
// socket with the same name, and the caller of Start removes the name at the end. The server limits the connections of
// clients that have not authenticated.
//
// Thread-safe. The destructor waits for at most `grace` until answers under way have been sent, and returns once all
// streams have closed.
class MessageServer {
 public:
  enum class Callers {
    kAll,
    kThisUser,  // and root; callers from other hosts are not checked
  };
  // The callers of a server whose clients prove that they know `secret`, which may be empty on loopback.
  static Callers CallersWith(absl::string_view secret) { return secret.empty() ? Callers::kThisUser : Callers::kAll; }

  struct Options {
    std::string plugin;  // the path of libronda_hosts.so; empty: the folder of plugins
    Endpoint endpoint;
    std::string socket = {};  // the path of a Unix domain socket, instead of the endpoint; empty: none
    MessageLimits limits;
    absl::Duration grace;
    size_t clients = 0;  // expected to come at once; the limit grows by this number
    Callers callers = Callers::kAll;
    // Receives a stream, and opens or ends it, now or later. `method` is the client's name for it.
    std::function<void(absl::string_view method, MessageStream stream)> accept;
  };

  // Errors: the errors of LoadHostsPlugin, ListenAt, ListenOnPath and ConnectionLimiter; UNAVAILABLE if gRPC cannot
  // start.
  static absl::StatusOr<std::unique_ptr<MessageServer>> Start(Options options);

  ~MessageServer();
  MessageServer(const MessageServer&) = delete;
  MessageServer& operator=(const MessageServer&) = delete;

  int port() const { return port_; }
  // Connections whose clients have not authenticated, including those that have ended.
  int64_t unauthenticated() const { return limiter_->unauthenticated(); }

 private:
  MessageServer(const ronda_hosts_plugin* plugin, Options options) : plugin_(plugin), options_(std::move(options)) {}

  absl::Status Listen();
  // Gives a connection to gRPC, or ends it if its caller is refused.
  void HandOver(UniqueFd socket) const;

  const ronda_hosts_plugin* const plugin_;
  const Options options_;
  // These three members are constant once the server has started.
  int port_ = 0;
  ronda_hosts_server* server_ = nullptr;
  std::unique_ptr<ConnectionLimiter> limiter_;
};

// A connection from one rank to another rank, which may start later than the first.
//
// Thread-compatible, except Cancel, which is thread-safe. May be destroyed before its streams have closed.
class MessageChannel {
 public:
  // Errors: the errors of LoadHostsPlugin.
  static absl::StatusOr<std::unique_ptr<MessageChannel>> Connect(const std::string& plugin, const Endpoint& endpoint,
                                                                 const MessageLimits& limits);

  ~MessageChannel();
  MessageChannel(const MessageChannel&) = delete;
  MessageChannel& operator=(const MessageChannel&) = delete;

  enum class Absent { kIsAwaited, kIsAnError };

  // A stream, which begins when it is opened and is cut off after `timeout`. `absent`: whether to wait for a server
  // that does not listen yet, or to fail.
  MessageStream Call(const std::string& method, Absent absent, absl::Duration timeout);

  // Cuts off the last stream that Call returned.
  void Cancel();

 private:
  MessageChannel(const ronda_hosts_plugin* plugin, ronda_hosts_channel* channel) : plugin_(plugin), channel_(channel) {}

  const ronda_hosts_plugin* const plugin_;
  ronda_hosts_channel* const channel_;
};

// A call of one message each way, on a stream that is not open yet. Waits for the answer, or for the stream's end.
// Errors: the server's result; the errors of gRPC.
absl::StatusOr<std::string> CallOnce(MessageStream stream, const std::string& request);

}  // namespace ronda

#endif  // RONDA_RUNTIME_NET_MESSAGE_STREAMS_H_
