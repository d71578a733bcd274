// SPDX-License-Identifier: Apache-2.0

// Streams of messages between processes on the same host or on different hosts, through libronda_hosts.so. The plugin
// libronda_hosts.so is loaded for the first stream.
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

// The owner of a stream. Threads of the plugin call the owner's functions. At any time there is at most one call about
// received messages and one call about writes.
class MessageStreamOwner {
 public:
  virtual ~MessageStreamOwner() = default;
  virtual void OnMessage(absl::string_view message) = 0;
  // Called when no further message will come.
  virtual void OnReadsEnd() = 0;
  // Called when the message of the last Write has been sent, or when it can never be sent. After this call, the stream
  // accepts the next Write.
  virtual void OnWritten() = 0;
  // Called only at the server's end, when the client has cancelled the call or is gone.
  virtual void OnCancelled() {}
  // The last call for a stream. At the client's end `status` is the server's result. At the server's end `status` is
  // OK.
  virtual void OnClosed(const absl::Status& status) = 0;
};

// A reference to one end of a stream. A stream closes some time after a call of End, and never before. When a stream
// closes, it frees its own memory.
class MessageStream {
 public:
  // Refers to the client's end of a stream.
  MessageStream(const ronda_hosts_plugin* plugin, ronda_hosts_stream* stream) : plugin_(plugin), stream_(stream) {}
  // Refers to the server's end of a stream. `client` is the client's address.
  MessageStream(const ronda_hosts_plugin* plugin, ronda_hosts_stream* stream, ConnectionLimiter* limiter,
                std::string client)
      : plugin_(plugin), stream_(stream), limiter_(limiter), client_(std::move(client)) {}

  // Opens the stream, and begins to read messages. The caller must call Open at most once. To refuse a stream, the
  // caller calls End instead of Open, and the owner then gets no call.
  void Open(MessageStreamOwner* owner);
  // Sends a message. REQUIRES: End has not been called, and each earlier Write has been followed by OnWritten.
  void Write(absl::string_view message);
  // Announces that this end will write nothing more. At the server's end, `status` is the result for the client. The
  // caller must call End exactly once. REQUIRES: the same as for Write.
  void End(const absl::Status& status);

  // Must be called at the server's end after the client has authenticated. After this call, the connection of the
  // client does not count towards the server's limit. If the client has already left, its connection is still counted
  // as unauthenticated.
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

// Listens on one address, whose port no other program can share, or on a Unix domain socket. A Unix domain socket
// replaces an existing socket with the same name. The caller of Start must remove the socket's name at the end. The
// server limits the connections of clients that have not authenticated.
//
// Thread-safe. The destructor waits for at most `grace` until the last answers have been sent, and returns when all
// streams have closed.
class MessageServer {
 public:
  enum class Callers {
    kAll,
    kThisUser,  // and root; callers from other hosts are not checked
  };
  // Returns which callers a server accepts if its clients must prove that they know `secret`. The secret may be empty
  // on loopback. The server then accepts only processes of this user and of root.
  static Callers CallersWith(absl::string_view secret) { return secret.empty() ? Callers::kThisUser : Callers::kAll; }

  struct Options {
    std::string plugin;  // the path of libronda_hosts.so; empty: the folder of plugins
    Endpoint endpoint;
    std::string socket = {};  // the path of a Unix domain socket, instead of the endpoint; empty: none
    MessageLimits limits;
    absl::Duration grace;
    size_t clients = 0;  // expected to come at once; the limit grows by this number
    Callers callers = Callers::kAll;
    // Called once for each new stream. The function must open or end the stream, now or later. `method` is the name
    // with which the client has called.
    std::function<void(absl::string_view method, MessageStream stream)> accept;
  };

  // Errors: the errors of LoadHostsPlugin, ListenAt, ListenOnPath and ConnectionLimiter; UNAVAILABLE if gRPC cannot
  // start.
  static absl::StatusOr<std::unique_ptr<MessageServer>> Start(Options options);

  ~MessageServer();
  MessageServer(const MessageServer&) = delete;
  MessageServer& operator=(const MessageServer&) = delete;

  int port() const { return port_; }
  // Returns how many connections have not authenticated, including connections that have ended.
  int64_t unauthenticated() const { return limiter_->unauthenticated(); }

 private:
  MessageServer(const ronda_hosts_plugin* plugin, Options options) : plugin_(plugin), options_(std::move(options)) {}

  absl::Status Listen();
  // Passes a connection on to gRPC, or ends it if its caller is refused.
  void HandOver(UniqueFd socket) const;

  const ronda_hosts_plugin* const plugin_;
  const Options options_;
  // The next three data members do not change after the server has started.
  int port_ = 0;
  ronda_hosts_server* server_ = nullptr;
  std::unique_ptr<ConnectionLimiter> limiter_;
};

// A connection from one rank to another rank. The other rank may start later.
//
// Thread-compatible, except Cancel, which is thread-safe. A MessageChannel may be destroyed before its streams have
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

  // Returns a stream, which begins when it is opened, and is ended by force after `timeout`. If the server does not
  // listen yet, `absent` decides whether the stream waits or fails.
  MessageStream Call(const std::string& method, Absent absent, absl::Duration timeout);

  // By force, ends the stream that Call has returned last.
  void Cancel();

 private:
  MessageChannel(const ronda_hosts_plugin* plugin, ronda_hosts_channel* channel) : plugin_(plugin), channel_(channel) {}

  const ronda_hosts_plugin* const plugin_;
  ronda_hosts_channel* const channel_;
};

// Sends `request` on a stream that is not open yet, and waits for the answer or for the stream's end. Returns the
// answer. Errors: the server's result; the errors of gRPC.
absl::StatusOr<std::string> CallOnce(MessageStream stream, const std::string& request);

}  // namespace ronda

#endif  // RONDA_RUNTIME_NET_MESSAGE_STREAMS_H_
