// Streams of messages between processes on any hosts, through libronda_hosts.so, which is loaded by the first of them.
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

// Loads the plugin for jobs on several hosts. `path` may be empty, as in LoadPlugin, whose errors these are.
absl::StatusOr<const ronda_hosts_plugin*> LoadHostsPlugin(const std::string& path);

// The owner of a stream, which hears of its events from threads of the plugin: one call at a time for messages, and one
// for writes.
class MessageStreamOwner {
 public:
  virtual ~MessageStreamOwner() = default;
  virtual void OnMessage(absl::string_view message) = 0;
  // No message will come any more.
  virtual void OnReadsEnd() = 0;
  // The message of the last Write has gone, or never will; the stream takes the next.
  virtual void OnWritten() = 0;
  // At the server's end: the client has hung up.
  virtual void OnCancelled() {}
  // The last call. `status` is the server's word at the client's end, and OK at the server's.
  virtual void OnClosed(const absl::Status& status) = 0;
};

// A reference to one end of a stream, which frees itself once it has closed: that comes some time after End, never
// before.
class MessageStream {
 public:
  // At the client's end.
  MessageStream(const ronda_hosts_plugin* plugin, ronda_hosts_stream* stream) : plugin_(plugin), stream_(stream) {}
  // At the server's end, with the address of its client.
  MessageStream(const ronda_hosts_plugin* plugin, ronda_hosts_stream* stream, ConnectionLimiter* limiter,
                std::string client)
      : plugin_(plugin), stream_(stream), limiter_(limiter), client_(std::move(client)) {}

  // Begins to read. To be called once; a stream that is not wanted may be ended instead, and no call follows.
  void Open(MessageStreamOwner* owner);
  // REQUIRES: neither End nor another Write has been called that OnWritten has not followed.
  void Write(absl::string_view message);
  // Announces that nothing more will be written, at the server's end with a word for the client. To be called once.
  // REQUIRES: as Write.
  void End(const absl::Status& status);

  // At the server's end: the client has authenticated, so the server does not limit its connection any more. If the
  // client has left before, it is still counted as unauthenticated.
  void Authenticated() const { limiter_->Authenticated(client_); }

 private:
  const ronda_hosts_plugin* plugin_;
  ronda_hosts_stream* stream_;
  ConnectionLimiter* limiter_ = nullptr;
  std::string client_;
};

struct MessageLimits {
  std::optional<size_t> max_message_bytes = {};  // that are taken; nullopt: any
  std::optional<int> window_bytes = {};          // under way to us without an answer; nullopt: gRPC's choice
};

// Listens on one address, without sharing the port; or on a Unix domain socket, which replaces a socket of that name,
// and whose name the caller removes. Limits the connections of clients that have not authenticated.
//
// Thread-safe. The destructor gives answers under way `grace` to go out, and returns once all streams have closed.
class MessageServer {
 public:
  enum class Callers {
    kAll,
    kThisUser,  // and root; callers from other hosts are not checked
  };
  // The callers of a server whose clients prove that they know `secret`, which may be empty on loopback.
  static Callers CallersWith(absl::string_view secret) { return secret.empty() ? Callers::kThisUser : Callers::kAll; }

  struct Options {
    std::string plugin;  // the path of libronda_hosts.so; empty: where plugins are
    Endpoint endpoint;
    std::string socket = {};  // the path of a Unix domain socket, instead of the endpoint; empty: none
    MessageLimits limits;
    absl::Duration grace;
    size_t clients = 0;  // that are expected to come at once; so many more connections are taken
    Callers callers = Callers::kAll;
    // Takes a stream, which is to be opened or ended, now or later. `method` is the client's name for it.
    std::function<void(absl::string_view method, MessageStream stream)> accept;
  };

  // Errors: those of LoadHostsPlugin, ListenAt, ListenOnPath and ConnectionLimiter; UNAVAILABLE if gRPC cannot start.
  static absl::StatusOr<std::unique_ptr<MessageServer>> Start(Options options);

  ~MessageServer();
  MessageServer(const MessageServer&) = delete;
  MessageServer& operator=(const MessageServer&) = delete;

  int port() const { return port_; }
  // Connections whose clients have not authenticated, those included that have ended.
  int64_t unauthenticated() const { return limiter_->unauthenticated(); }

 private:
  MessageServer(const ronda_hosts_plugin* plugin, Options options) : plugin_(plugin), options_(std::move(options)) {}

  absl::Status Listen();
  // Gives a connection to gRPC, or ends it if its caller is refused.
  void HandOver(UniqueFd socket) const;

  const ronda_hosts_plugin* const plugin_;
  const Options options_;
  // Constant once started, like the next two.
  int port_ = 0;
  ronda_hosts_server* server_ = nullptr;
  std::unique_ptr<ConnectionLimiter> limiter_;
};

// A connection from one rank to another, which may start later than we do.
//
// Thread-compatible, but for Cancel, which is thread-safe. May be destroyed before its streams have closed.
class MessageChannel {
 public:
  // Errors: those of LoadHostsPlugin.
  static absl::StatusOr<std::unique_ptr<MessageChannel>> Connect(const std::string& plugin, const Endpoint& endpoint,
                                                                 const MessageLimits& limits);

  ~MessageChannel();
  MessageChannel(const MessageChannel&) = delete;
  MessageChannel& operator=(const MessageChannel&) = delete;

  enum class Absent { kIsAwaited, kIsAnError };

  // A stream, which begins once it is opened and is cut off after `timeout`. `absent`: what a server is that does not
  // listen.
  MessageStream Call(const std::string& method, Absent absent, absl::Duration timeout);

  // Cuts off the last stream that was called.
  void Cancel();

 private:
  MessageChannel(const ronda_hosts_plugin* plugin, ronda_hosts_channel* channel) : plugin_(plugin), channel_(channel) {}

  const ronda_hosts_plugin* const plugin_;
  ronda_hosts_channel* const channel_;
};

// A call of one message each way, on a stream that is not open yet: waits for the answer, or the stream's end.
// Errors: the server's word; those of gRPC.
absl::StatusOr<std::string> CallOnce(MessageStream stream, const std::string& request);

}  // namespace ronda

#endif  // RONDA_RUNTIME_NET_MESSAGE_STREAMS_H_
