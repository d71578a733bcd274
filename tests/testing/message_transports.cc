#include "tests/testing/message_transports.h"

#include <unistd.h>

#include <memory>
#include <utility>

#include "runtime/collectives/messages/message_communicator.h"
#include "runtime/control/inprocess/in_process_control_plane.h"
#include "runtime/control/inprocess/in_process_job.h"
#include "tests/testing/fake_messages.h"
#include "tests/testing/tcp_ranks.h"

namespace ronda::testing {
namespace {

constexpr size_t kChunkBytes = 4096;

// One transport for each of `ends`.
std::vector<Transport> ConnectEnds(std::vector<std::unique_ptr<PointToPoint>> ends) {
  const int size = static_cast<int>(ends.size());
  const auto job = std::make_shared<InProcessJob>(InProcessJob::Options{.size = size});
  std::vector<Peer> peers;
  for (RankId rank = 0; rank < size; ++rank) peers.push_back({.rank = rank, .host = "localhost", .pid = getpid()});
  std::vector<Transport> transports;
  for (RankId rank = 0; rank < size; ++rank) {
    auto communicator = std::make_unique<MessageCommunicator>(
        MessageCommunicator::Options{.messages = std::move(ends[static_cast<size_t>(rank)]),
                                     .peers = peers,
                                     .flights = job->flights(),
                                     .job_failure = [job] { return job->failure(); }});
    communicator->Tune({.chunk_bytes = kChunkBytes});
    transports.push_back({.control = std::make_unique<InProcessControlPlane>(job, rank),
                          .communicator = std::move(communicator),
                          .flights = job->flights()});
  }
  return transports;
}

}  // namespace

std::vector<Transport> ConnectMessageTransports(int size, uint64_t seed) {
  return ConnectEnds(ConnectFakeMessages(size, seed));
}

std::vector<Transport> ConnectTcpTransports(int size) { return ConnectEnds(ConnectTcpMessages(size)); }

}  // namespace ronda::testing
