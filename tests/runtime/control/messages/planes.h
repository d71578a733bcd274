// SPDX-License-Identifier: Apache-2.0

// Helpers of the tests of control planes over messages. All ranks of these tests are in this process.
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
// The control plane of each rank, or the reason why the rank has none.
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

// Waits until this rank knows a failure of the job, and returns it.
absl::Status AwaitFailure(ControlPlane& control);

}  // namespace ronda::testing

#endif  // RONDA_TESTS_RUNTIME_CONTROL_MESSAGES_PLANES_H_
