#include "runtime/monitor/serve/monitor_rpc.h"

#include <sys/un.h>

#include <cstddef>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
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
      : ServedCall(stream), service_(service), method_(method) {}

 private:
  void Serve(absl::string_view request) override { Answer(service_->Answer(method_, request)); }

  Service* const service_;
  const std::string method_;
};

// Fills in how calls are taken, and serves.
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
  if (path.size() >= sizeof(sockaddr_un::sun_path)) {
    return absl::InvalidArgumentError(absl::StrCat("a socket's path has ", sizeof(sockaddr_un::sun_path) - 1,
                                                   " bytes at most, and this one is longer: ", path,
                                                   "; set XDG_RUNTIME_DIR to a folder with a shorter name"));
  }
  return Start({.plugin = plugin, .socket = path}, service);
}

absl::StatusOr<std::unique_ptr<MessageServer>> ServeOnPort(const Endpoint& endpoint, const std::string& plugin,
                                                           ProvedCalls* calls) {
  return Start({.plugin = plugin, .endpoint = endpoint}, calls);
}

}  // namespace ronda
