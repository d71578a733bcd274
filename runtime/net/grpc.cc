#include "runtime/net/grpc.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/support/channel_arguments.h>

#include "absl/strings/str_cat.h"

namespace ronda {

std::shared_ptr<grpc::Channel> ConnectChannel(const Endpoint& endpoint, const ChannelOptions& options) {
  grpc::ChannelArguments arguments;
  // The other rank may start later than we do: by default, gRPC tries again after seconds.
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 20);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 1000);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 200);
  // Ranks talk to each other directly, regardless of http_proxy.
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  // Channels of one process would otherwise share connections, and so the wait after a failed one.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetMaxReceiveMessageSize(static_cast<int>(options.max_message_bytes.value_or(-1)));
  if (options.window_bytes.has_value()) arguments.SetInt(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, *options.window_bytes);
  const char* const scheme = endpoint.family == AddressFamily::kIPv6 ? "ipv6:" : "ipv4:";
  return grpc::CreateCustomChannel(absl::StrCat(scheme, NumericText(endpoint)), grpc::InsecureChannelCredentials(),
                                   arguments);
}

}  // namespace ronda
