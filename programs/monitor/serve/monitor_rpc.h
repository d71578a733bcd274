// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_PROGRAMS_MONITOR_SERVE_MONITOR_RPC_H_
#define RONDA_PROGRAMS_MONITOR_SERVE_MONITOR_RPC_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "programs/monitor/serve/monitor_service.h"
#include "programs/monitor/serve/proved_calls.h"
#include "runtime/net/endpoint.h"
#include "runtime/net/message_streams.h"

namespace ronda {

// Serves `service` over gRPC on the Unix socket `path`. Creates the socket, or replaces an old one. Every user that may
// enter the socket's folder may call the service. `plugin` is explained at MessageServer. `service` must outlive the
// server.
// Errors: INVALID_ARGUMENT if the path is too long for a socket; the errors of MessageServer::Start.
absl::StatusOr<std::unique_ptr<MessageServer>> ServeOnSocket(const std::string& path, const std::string& plugin,
                                                             const MonitorService* service);

// Serves `calls` on a port of the network, for callers that know the job's secret. `calls` must outlive the server.
// Errors: the errors of MessageServer::Start.
absl::StatusOr<std::unique_ptr<MessageServer>> ServeOnPort(const Endpoint& endpoint, const std::string& plugin,
                                                           ProvedCalls* calls);

}  // namespace ronda

#endif  // RONDA_PROGRAMS_MONITOR_SERVE_MONITOR_RPC_H_
