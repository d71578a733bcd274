#include "runtime/net/message_streams.h"

#include <optional>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/mutex.h"
#include "runtime/base/plugin_search.h"
#include "runtime/base/status_macros.h"

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
  return {.max_message_bytes = limits.max_message_bytes ? static_cast<int64_t>(*limits.max_message_bytes) : -1,
          .window_bytes = limits.window_bytes.value_or(0)};
}

}  // namespace

absl::StatusOr<const ronda_hosts_plugin*> LoadHostsPlugin(const std::string& path) {
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
  // gRPC does not say why it cannot listen.
  if (options.socket.empty()) RONDA_RETURN_IF_ERROR(CheckCanListen(options.endpoint));
  std::unique_ptr<MessageServer> server(new MessageServer(plugin, std::move(options)));
  const ronda_hosts_limits limits = ToPlugin(server->options_.limits);
  const auto accept = [](void* context, const char* method, ronda_hosts_stream* stream) {
    const auto* const self = static_cast<const MessageServer*>(context);
    self->options_.accept(method, MessageStream(self->plugin_, stream));
  };
  const std::string& socket = server->options_.socket;
  const std::string address = socket.empty() ? NumericText(server->options_.endpoint) : absl::StrCat("unix:", socket);
  server->server_ = plugin->listen(address.c_str(), &limits, accept, server.get(), &server->port_);
  if (server->server_ != nullptr) return server;
  return absl::UnavailableError(
      absl::StrCat("gRPC cannot listen on ", socket.empty() ? ToString(server->options_.endpoint) : address));
}

MessageServer::~MessageServer() {
  if (server_ != nullptr) plugin_->shut_down(server_, absl::ToInt64Milliseconds(options_.grace));
}

absl::StatusOr<std::unique_ptr<MessageChannel>> MessageChannel::Connect(const std::string& plugin_path,
                                                                        const Endpoint& endpoint,
                                                                        const MessageLimits& limits) {
  RONDA_ASSIGN_OR_RETURN(const ronda_hosts_plugin* const plugin, LoadHostsPlugin(plugin_path));
  const char* const scheme = endpoint.family == AddressFamily::kIPv6 ? "ipv6:" : "ipv4:";
  const ronda_hosts_limits plugin_limits = ToPlugin(limits);
  ronda_hosts_channel* const channel =
      plugin->connect(absl::StrCat(scheme, NumericText(endpoint)).c_str(), &plugin_limits);
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

// A call whose caller waits for its answer.
class WaitingCall final : public MessageStreamOwner {
 public:
  absl::StatusOr<std::string> Run(MessageStream stream, const std::string& request) {
    stream_ = stream;
    stream.Open(this);
    stream.Write(request);
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
  std::string answer_;                   // of the calls for messages, which end before the stream closes
  Mutex mu_;
  CondVar closed_;
  std::optional<absl::Status> status_ ABSL_GUARDED_BY(mu_);
};

}  // namespace

absl::StatusOr<std::string> CallOnce(MessageStream stream, const std::string& request) {
  return WaitingCall().Run(stream, request);
}

}  // namespace ronda
