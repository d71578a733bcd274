// SPDX-License-Identifier: Apache-2.0

// Message streams between processes on the same or different hosts, through the plugin libronda_hosts.so, which is
// loaded on first use.
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

// Loads the plugin for jobs on several hosts. `path` may be empty, as for LoadPlugin().
// Errors: FAILED_PRECONDITION if the system does not allow a call that gRPC needs; the errors of LoadPlugin().
absl::StatusOr<const ronda_hosts_plugin*> LoadHostsPlugin(const std::string& path);

// The owner of a stream, called on the plugin's threads. At most one read callback (OnMessage, OnReadsEnd) and one
// write callback (OnWritten) run at a time.
class MessageStreamOwner {
 public:
  virtual ~MessageStreamOwner() = default;
  virtual void OnMessage(absl::string_view message) = 0;
  // Called when no more messages will arrive.
  virtual void OnReadsEnd() = 0;
  // Called when the message of the last Write() has been sent or has failed. The next Write() is then allowed.
  virtual void OnWritten() = 0;
  // Called only at the server's end, when the client has cancelled the call or has disconnected.
  virtual void OnCancelled() {}
  // The last call for a stream. `status` is the server's result at the client's end, and OK at the server's end.
  virtual void OnClosed(const absl::Status& status) = 0;
};

// A reference to one end of a stream. The stream closes some time after End() is called, never before, and then frees
// itself.
class MessageStream {
 public:
  // Refers to the client's end of a stream.
  MessageStream(const ronda_hosts_plugin* plugin, ronda_hosts_stream* stream) : plugin_(plugin), stream_(stream) {}
  // Refers to the server's end of a stream. `client` is the client's address.
  MessageStream(const ronda_hosts_plugin* plugin, ronda_hosts_stream* stream, ConnectionLimiter* limiter,
                std::string client)
      : plugin_(plugin), stream_(stream), limiter_(limiter), client_(std::move(client)) {}

  // Opens the stream, and starts reading messages. Must be called at most once. To reject a stream, call End() instead;
  // no owner is then called.
  void Open(MessageStreamOwner* owner);
  // Sends a message. REQUIRES: End() has not been called, and each earlier Write() has been followed by OnWritten().
  void Write(absl::string_view message);
  // Announces that this end will write nothing more. At the server's end, `status` is the result for the client. Must
  // be called exactly once. REQUIRES: as for Write().
  void End(const absl::Status& status);

  // Must be called at the server's end when the client has authenticated. Its connection then no longer counts towards
  // the server's limit. If the client has already disconnected, its connection stays counted as unauthenticated.
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

// Listens on one address, whose port it shares with no other program, or on a Unix domain socket. Replaces an existing
// Unix domain socket at the same path; the caller of Start() must remove the path at the end. Limits the connections of
// clients that have not authenticated.
//
// Thread-safe. The destructor waits for up to `grace` for the last answers to be sent, and returns when all streams
// have closed.
class MessageServer {
 public:
  enum class Callers {
    kAll,
    kThisUser,  // and root; does not check callers from other hosts
  };
  // Returns which callers to accept on a server whose clients must prove that they know `secret`. On loopback the
  // secret may be empty: the server then only accepts processes of this user and of root.
  static Callers CallersWith(absl::string_view secret) { return secret.empty() ? Callers::kThisUser : Callers::kAll; }

  struct Options {
    std::string plugin;  // the path of libronda_hosts.so; empty: the folder of plugins
    Endpoint endpoint;
    std::string socket = {};  // the path of a Unix domain socket, instead of the endpoint; empty: none
    MessageLimits limits;
    absl::Duration grace;
    size_t clients = 0;  // expected to connect at the same time; raises the limit by this number
    Callers callers = Callers::kAll;
    // Called once for each new stream. Must open or end the stream, either during the call or later. `method` is the
    // name of the method that the client calls.
    std::function<void(absl::string_view method, MessageStream stream)> accept;
  };

  // Errors: those of LoadHostsPlugin(), ListenAt(), ListenOnPath() and ConnectionLimiter::Create(); UNAVAILABLE if gRPC
  // cannot start.
  static absl::StatusOr<std::unique_ptr<MessageServer>> Start(Options options);

  ~MessageServer();
  MessageServer(const MessageServer&) = delete;
  MessageServer& operator=(const MessageServer&) = delete;

  int port() const { return port_; }
  // Returns the number of connections so far, open or closed, that have not authenticated.
  int64_t unauthenticated() const { return limiter_->unauthenticated(); }

 private:
  MessageServer(const ronda_hosts_plugin* plugin, Options options) : plugin_(plugin), options_(std::move(options)) {}

  absl::Status Listen();
  // Passes a connection to gRPC, or closes it if its caller is not accepted.
  void HandOver(UniqueFd socket) const;

  const ronda_hosts_plugin* const plugin_;
  const Options options_;
  // Constant after the server has started.
  int port_ = 0;
  ronda_hosts_server* server_ = nullptr;
  std::unique_ptr<ConnectionLimiter> limiter_;
};

// A connection to another rank, which may start later than this one.
//
// Thread-compatible, except Cancel(), which is thread-safe. A MessageChannel may be destroyed before its streams have
// closed.
class MessageChannel {
 public:
  // Errors: the errors of LoadHostsPlugin.
  static absl::StatusOr<std::unique_ptr<MessageChannel>> Connect(const std::string& plugin, const Endpoint& endpoint,
                                                                 const MessageLimits& limits);

  ~MessageChannel();
  MessageChannel(const MessageChannel&) = delete;
  MessageChannel& operator=(const MessageChannel&) = delete;

  enum class Absent { kIsAwaited, kIsAnError };

  // Returns a stream, which starts when it is opened, and is cancelled after `timeout`. `absent` decides whether the
  // stream waits or fails if the server is not listening yet.
  MessageStream Call(const std::string& method, Absent absent, absl::Duration timeout);

  // Cancels the stream that Call() returned last.
  void Cancel();

 private:
  MessageChannel(const ronda_hosts_plugin* plugin, ronda_hosts_channel* channel) : plugin_(plugin), channel_(channel) {}

  const ronda_hosts_plugin* const plugin_;
  ronda_hosts_channel* const channel_;
};

// Opens `stream`, sends `request` and waits for the answer, which it returns. Errors: the server's error; gRPC's
// errors.
absl::StatusOr<std::string> CallOnce(MessageStream stream, const std::string& request);

}  // namespace ronda

#endif  // RONDA_RUNTIME_NET_MESSAGE_STREAMS_H_
