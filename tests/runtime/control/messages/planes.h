// SPDX-License-Identifier: Apache-2.0

// Helpers for tests of control planes over messages, with all ranks in this process.
#ifndef RONDA_TESTS_RUNTIME_CONTROL_MESSAGES_PLANES_H_
#define RONDA_TESTS_RUNTIME_CONTROL_MESSAGES_PLANES_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/base/peer.h"
#include "runtime/control/control_plane.h"

namespace ronda::testing {

using Planes = std::vector<std::unique_ptr<ControlPlane>>;
// Each rank's control plane, or the reason why it has none.
using TriedPlanes = std::vector<absl::StatusOr<std::unique_ptr<ControlPlane>>>;

// Returns the descriptions of `size` ranks in this process.
std::vector<Peer> PeersHere(int size);
// Returns the name of one of these ranks in error texts.
std::string PeerText(RankId rank);
std::string Text(const absl::Status& status);

// Calls connect(0), connect(1), ..., each on its own thread.
TriedPlanes ConnectOnThreads(size_t ranks,
                             const std::function<absl::StatusOr<std::unique_ptr<ControlPlane>>(size_t i)>& connect);

// Expects that all ranks have connected. If a rank has not connected, returns an empty list.
Planes ExpectAll(TriedPlanes tried);

// Calls Receive() until a message has arrived. The control plane's rank must be one that gets only one kind of message.
ControlPlane::Inbox ReceiveSome(ControlPlane& control);

// Waits until this rank knows of a failure of the job, and returns the failure.
absl::Status AwaitFailure(ControlPlane& control);

}  // namespace ronda::testing

#endif  // RONDA_TESTS_RUNTIME_CONTROL_MESSAGES_PLANES_H_
