// SPDX-License-Identifier: Apache-2.0

#include "tests/runtime/control/messages/planes.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"

namespace ronda::testing {

std::vector<Peer> PeersHere(int size) {
  std::vector<Peer> peers;
  for (RankId rank = 0; rank < size; ++rank) peers.push_back({.rank = rank, .host = "localhost", .pid = getpid()});
  return peers;
}

std::string PeerText(RankId rank) { return absl::StrCat("rank ", rank, " (host localhost, pid ", getpid(), ")"); }

std::string Text(const absl::Status& status) { return std::string(status.message()); }

TriedPlanes ConnectOnThreads(size_t ranks,
                             const std::function<absl::StatusOr<std::unique_ptr<ControlPlane>>(size_t i)>& connect) {
  TriedPlanes planes(ranks);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < ranks; ++i) {
    threads.emplace_back([&, i] { planes[i] = connect(i); });
  }
  for (std::thread& thread : threads) thread.join();
  return planes;
}

Planes ExpectAll(TriedPlanes tried) {
  Planes planes;
  for (absl::StatusOr<std::unique_ptr<ControlPlane>>& plane : tried) {
    EXPECT_TRUE(plane.ok()) << plane.status();
    if (!plane.ok()) return {};
    planes.push_back(*std::move(plane));
  }
  return planes;
}

ControlPlane::Inbox ReceiveSome(ControlPlane& control) {
  for (;;) {
    ControlPlane::Inbox inbox = *control.Receive();
    if (!inbox.to_coordinator.empty() || !inbox.broadcasts.empty()) return inbox;
    control.Wait(absl::InfiniteFuture());
  }
}

absl::Status AwaitFailure(ControlPlane& control) {
  while (control.failure().ok()) control.Wait(absl::InfiniteFuture());
  return control.failure();
}

}  // namespace ronda::testing
