// SPDX-License-Identifier: Apache-2.0

// Connects ranks that are threads of a test through message links.
#ifndef RONDA_TESTS_RUNTIME_COLLECTIVES_MESSAGES_LINK_RANKS_H_
#define RONDA_TESTS_RUNTIME_COLLECTIVES_MESSAGES_LINK_RANKS_H_

#include <functional>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/collectives/messages/message_link.h"
#include "tests/testing/message_transports.h"

namespace ronda::testing {

// Returns the name of a rank in error texts. For example, rank 0 of the link is rank 10 of the job, on host h10.
inline Peer LinkPeer(RankId rank) {
  return {.rank = 10 + rank, .host = "h" + std::to_string(10 + rank), .pid = 100 + rank};
}

// Returns one link per rank. Each link calls `job_failure` to learn of a failure.
inline std::vector<std::unique_ptr<MessageLink>> ConnectLinks(
    int size, uint64_t seed, const std::function<absl::Status()>& job_failure = [] { return absl::OkStatus(); }) {
  std::vector<Peer> peers;
  for (RankId rank = 0; rank < size; ++rank) peers.push_back(LinkPeer(rank));
  const auto flights = std::make_shared<FlightBoard>(10 + size);
  std::vector<std::unique_ptr<MessageLink>> links;
  for (std::unique_ptr<PointToPoint>& end : ConnectFakeMessages(size, seed)) {
    links.push_back(std::make_unique<MessageLink>(MessageLink::Options{
        .messages = std::move(end), .peers = peers, .flights = flights, .job_failure = job_failure}));
  }
  return links;
}

// Runs body(link) for each link, on its own thread.
template <typename Body>
void OnEveryLink(const std::vector<std::unique_ptr<MessageLink>>& links, const Body& body) {
  std::vector<std::thread> threads;
  for (const std::unique_ptr<MessageLink>& link : links) threads.emplace_back([&body, &link] { body(*link); });
  for (std::thread& thread : threads) thread.join();
}

}  // namespace ronda::testing

#endif  // RONDA_TESTS_RUNTIME_COLLECTIVES_MESSAGES_LINK_RANKS_H_
