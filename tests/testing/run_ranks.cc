// SPDX-License-Identifier: Apache-2.0

#include "tests/testing/run_ranks.h"

#include <functional>
#include <thread>
#include <utility>

namespace ronda::testing {

std::vector<Transport> ConnectInProcess(InProcessWorld::Options options) {
  const auto world = InProcessWorld::Create(std::move(options));
  std::vector<Transport> transports;
  for (RankId rank = 0; rank < world->size(); ++rank) transports.push_back(world->Connect(rank));
  return transports;
}

void RunRanks(std::vector<Transport> transports, const RankBody& body) {
  std::vector<std::thread> threads;
  for (size_t rank = 0; rank < transports.size(); ++rank) {
    threads.emplace_back(body, static_cast<RankId>(rank), std::move(transports[rank]));
  }
  for (std::thread& thread : threads) thread.join();
}

void RunRanksOn(std::vector<Transport>& transports, const std::function<void(RankId, Transport&)>& body) {
  std::vector<std::thread> threads;
  for (size_t rank = 0; rank < transports.size(); ++rank) {
    threads.emplace_back(body, static_cast<RankId>(rank), std::ref(transports[rank]));
  }
  for (std::thread& thread : threads) thread.join();
}

void RunRanks(int size, const RankBody& body) { RunRanks(ConnectInProcess({.size = size}), body); }

}  // namespace ronda::testing
