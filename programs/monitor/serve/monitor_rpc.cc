// SPDX-License-Identifier: Apache-2.0

#include "programs/monitor/serve/monitor_rpc.h"

#include <cstddef>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "programs/monitor/serve/proved_calls.h"
#include "runtime/net/served_call.h"

namespace ronda {
namespace {

constexpr size_t kMostRequestBytes = size_t{64} << 10;
constexpr absl::Duration kGrace = absl::Seconds(1);

// A call that `Service` answers.
template <typename Service>
class MonitorCall final : public ServedCall {
 public:
  MonitorCall(Service* service, absl::string_view method, MessageStream stream)
      : ServedCall(std::move(stream)), service_(service), method_(method) {}

 private:
  void Serve(absl::string_view request) override {
    const absl::StatusOr<std::string> answer = service_->Answer(method_, request);
    // Only clients that have proved that they know the secret get an answer to a method other than Challenge.
    if (answer.ok() && method_ != kMonitorChallenge) Authenticated();
    Answer(answer);
  }

  Service* const service_;
  const std::string method_;
};

// Starts a server that passes each call on to `service`.
template <typename Service>
absl::StatusOr<std::unique_ptr<MessageServer>> Start(MessageServer::Options options, Service* service) {
  options.limits.max_message_bytes = kMostRequestBytes;
  options.grace = kGrace;
  options.accept = [service](absl::string_view method, MessageStream stream) {
    stream.Open(new MonitorCall<Service>(service, method, stream));
  };
  return MessageServer::Start(std::move(options));
}

}  // namespace

absl::StatusOr<std::unique_ptr<MessageServer>> ServeOnSocket(const std::string& path, const std::string& plugin,
                                                             const MonitorService* service) {
  auto server = Start({.plugin = plugin, .socket = path}, service);
  if (!absl::IsInvalidArgument(server.status())) return server;
  return absl::InvalidArgumentError(
      absl::StrCat(server.status().message(), "; set XDG_RUNTIME_DIR to a folder with a shorter name"));
}

absl::StatusOr<std::unique_ptr<MessageServer>> ServeOnPort(const Endpoint& endpoint, const std::string& plugin,
                                                           ProvedCalls* calls) {
  return Start({.plugin = plugin, .endpoint = endpoint}, calls);
}

}  // namespace ronda
