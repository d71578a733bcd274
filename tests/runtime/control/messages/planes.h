// SPDX-License-Identifier: Apache-2.0

// What the tests of control planes over messages share. Their ranks are in this process.
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
// By rank: its control plane, or the reason why it has none.
using TriedPlanes = std::vector<absl::StatusOr<std::unique_ptr<ControlPlane>>>;

// The ranks of a job of `size`.
std::vector<Peer> PeersHere(int size);
// How errors name a rank of such a job.
std::string PeerText(RankId rank);
std::string Text(const absl::Status& status);

// Calls connect(0), connect(1), ..., each on its own thread.
TriedPlanes ConnectOnThreads(size_t ranks,
                             const std::function<absl::StatusOr<std::unique_ptr<ControlPlane>>(size_t i)>& connect);

// Expects all ranks to have connected. Returns nothing if one has not.
Planes ExpectAll(TriedPlanes tried);

// Receives until a message has come. The rank must be one that gets only one kind of message.
ControlPlane::Inbox ReceiveSome(ControlPlane& control);

// Waits until this rank knows a failure of the job, and returns it.
absl::Status AwaitFailure(ControlPlane& control);

}  // namespace ronda::testing

#endif  // RONDA_TESTS_RUNTIME_CONTROL_MESSAGES_PLANES_H_
