// SPDX-License-Identifier: Apache-2.0

#include "tests/testing/message_transports.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/group.h"
#include "runtime/base/logging.h"
#include "runtime/base/mutex.h"
#include "runtime/base/status_macros.h"
#include "runtime/collectives/hierarchical/hierarchical_communicator.h"
#include "runtime/collectives/messages/message_communicator.h"
#include "runtime/collectives/shm/shm_communicator.h"
#include "runtime/control/inprocess/in_process_job.h"
#include "runtime/shm/shm_world.h"
#include "tests/testing/fakes.h"

namespace ronda::testing {
namespace {

enum class Side { kSender, kReceiver };

// A message. The sender or the receiver creates it, whichever posts first.
struct Message {
  const void* source = nullptr;
  void* destination = nullptr;
  size_t sent_bytes = 0;
  size_t wanted_bytes = 0;
  bool is_sent = false;      // the sender has posted it
  bool is_wanted = false;    // the receiver has
  bool is_read = false;      // `content` has the message, so the sender is done
  bool is_received = false;  // the receiver is done
  int sender_delay = 0;      // calls on each side that still pass without effect
  int receiver_delay = 0;
  std::string content;
};

// The messages from one rank to another. The receiver gets the messages in the order in which they were sent.
struct Channel {
  uint64_t sent = 0;
  uint64_t received = 0;
  std::map<uint64_t, Message> under_way;
};

// State that all ranks share.
class Post {
 public:
  Post(int size, uint64_t seed)
      : size_(size), random_(seed), channels_(static_cast<size_t>(size) * static_cast<size_t>(size)) {}

  int size() const { return size_; }

  // Returns the message number.
  uint64_t Send(RankId from, RankId to, const void* data, size_t bytes) {
    const MutexLock lock(&mu_);
    Channel& channel = ChannelOf(from, to);
    const uint64_t number = channel.sent++;
    Message& message = channel.under_way[number];
    message.source = data;
    message.sent_bytes = bytes;
    message.is_sent = true;
    message.sender_delay = static_cast<int>(random_() % kLongestDelay);
    message.receiver_delay = static_cast<int>(random_() % kLongestDelay);
    if (random_() % 2 == 0) Read(message);
    return number;
  }

  uint64_t Receive(RankId from, RankId to, void* data, size_t bytes) {
    const MutexLock lock(&mu_);
    Channel& channel = ChannelOf(from, to);
    const uint64_t number = channel.received++;
    Message& message = channel.under_way[number];
    message.destination = data;
    message.wanted_bytes = bytes;
    message.is_wanted = true;
    return number;
  }

  // Advances `side` of the message as far as possible. Returns whether this side is done.
  absl::StatusOr<bool> Advance(RankId from, RankId to, uint64_t number, Side side) {
    const MutexLock lock(&mu_);
    Channel& channel = ChannelOf(from, to);
    const auto it = channel.under_way.find(number);
    if (it == channel.under_way.end()) return true;
    Message& message = it->second;
    if (message.is_sent && message.is_wanted && message.sent_bytes != message.wanted_bytes) {
      return absl::InternalError(absl::StrCat("rank ", to, " wants ", message.wanted_bytes, " bytes of rank ", from,
                                              ", which sends ", message.sent_bytes));
    }
    const bool is_done = side == Side::kSender ? AdvanceSender(message) : AdvanceReceiver(message);
    if (message.is_read && message.is_received) channel.under_way.erase(it);
    return is_done;
  }

 private:
  static constexpr uint64_t kLongestDelay = 4;

  Channel& ChannelOf(RankId from, RankId to) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return channels_[static_cast<size_t>(from * size_ + to)];
  }

  static void Read(Message& message) {
    message.content.assign(static_cast<const char*>(message.source), message.sent_bytes);
    message.is_read = true;
  }

  static bool AdvanceSender(Message& message) {
    if (message.is_read) return true;
    if (!message.is_wanted || message.sender_delay-- > 0) return false;
    Read(message);
    return true;
  }

  static bool AdvanceReceiver(Message& message) {
    if (message.is_received) return true;
    if (!message.is_read || message.receiver_delay-- > 0) return false;
    if (!message.content.empty()) std::memcpy(message.destination, message.content.data(), message.content.size());
    message.is_received = true;
    return true;
  }

  const int size_;
  Mutex mu_;
  std::mt19937_64 random_ ABSL_GUARDED_BY(mu_);
  std::vector<Channel> channels_ ABSL_GUARDED_BY(mu_);  // [from * size + to]
};

class FakeMessages : public PointToPoint {
 public:
  FakeMessages(std::shared_ptr<Post> post, RankId rank) : post_(std::move(post)), rank_(rank) {}

  RankId rank() const override { return rank_; }
  int size() const override { return post_->size(); }

  absl::StatusOr<Request> Send(const void* data, size_t bytes, RankId to) override {
    RONDA_CHECK(0 <= to && to < size() && to != rank_);
    return Begin({.side = Side::kSender, .peer = to, .number = post_->Send(rank_, to, data, bytes)});
  }

  absl::StatusOr<Request> Receive(void* data, size_t bytes, RankId from) override {
    RONDA_CHECK(0 <= from && from < size() && from != rank_);
    return Begin({.side = Side::kReceiver, .peer = from, .number = post_->Receive(from, rank_, data, bytes)});
  }

  absl::StatusOr<bool> Test(absl::Span<Request> requests) override {
    RONDA_RETURN_IF_ERROR(AdvanceAll());
    for (const Request& request : requests) {
      RONDA_CHECK(under_way_.contains(request.words[0]));
      if (!under_way_[request.words[0]].is_done) return false;
    }
    for (const Request& request : requests) under_way_.erase(request.words[0]);
    return true;
  }

 private:
  struct Transfer {
    Side side;
    RankId peer;
    uint64_t number;
    bool is_done = false;
  };

  Request Begin(const Transfer& transfer) {
    under_way_[next_] = transfer;
    return {.words = {next_++, 0}};
  }

  // Any call may advance any transfer of the calling rank, as in MPI.
  absl::Status AdvanceAll() {
    for (auto& [id, transfer] : under_way_) {
      if (transfer.is_done) continue;
      const bool sends = transfer.side == Side::kSender;
      RONDA_ASSIGN_OR_RETURN(
          transfer.is_done,
          post_->Advance(sends ? rank_ : transfer.peer, sends ? transfer.peer : rank_, transfer.number, transfer.side));
    }
    return absl::OkStatus();
  }

  const std::shared_ptr<Post> post_;
  const RankId rank_;
  uint64_t next_ = 0;
  std::map<uint64_t, Transfer> under_way_;  // until Test has reported that they are complete
};

}  // namespace

std::vector<std::unique_ptr<PointToPoint>> ConnectFakeMessages(int size, uint64_t seed) {
  const auto post = std::make_shared<Post>(size, seed);
  std::vector<std::unique_ptr<PointToPoint>> ends;
  for (RankId rank = 0; rank < size; ++rank) ends.push_back(std::make_unique<FakeMessages>(post, rank));
  return ends;
}

std::unique_ptr<TcpListener> ListenOnLoopback() {
  auto listener = TcpListener::Start({.host = "localhost", .address = "127.0.0.1", .loopback = true});
  EXPECT_TRUE(listener.ok()) << listener.status();
  return listener.ok() ? *std::move(listener) : nullptr;
}

TcpMeshOptions MeshOptions(const std::vector<std::unique_ptr<TcpListener>>& listeners, RankId rank) {
  TcpMeshOptions options = {.job = {.job_id = "job", .secret = "open sesame"}, .rank = rank};
  for (const std::unique_ptr<TcpListener>& listener : listeners) {
    const auto number = static_cast<RankId>(options.peers.size());
    options.peers.push_back({.rank = number, .host = "h" + std::to_string(number), .pid = getpid()});
    options.endpoints.push_back(listener->endpoint());
  }
  options.job_failure = [] { return absl::OkStatus(); };
  return options;
}

std::vector<std::unique_ptr<PointToPoint>> ConnectTcpMessages(int size) {
  std::vector<std::unique_ptr<TcpListener>> listeners;
  for (RankId rank = 0; rank < size; ++rank) {
    listeners.push_back(ListenOnLoopback());
    if (listeners.back() == nullptr) return {};
  }
  std::vector<std::unique_ptr<PointToPoint>> ends(static_cast<size_t>(size));
  std::vector<std::thread> threads;
  for (RankId rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      auto messages = ConnectTcp(*listeners[static_cast<size_t>(rank)], MeshOptions(listeners, rank),
                                 {{.number = 0, .ranks = Group::All(size).ranks()}});
      EXPECT_TRUE(messages.ok()) << messages.status();
      if (messages.ok()) ends[static_cast<size_t>(rank)] = std::move(messages->front());
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::unique_ptr<PointToPoint>& end : ends) {
    if (end == nullptr) return {};
  }
  return ends;
}

namespace {

constexpr size_t kChunkBytes = 4096;

// Returns one transport for each of `ends`.
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

namespace {

using Worlds = std::vector<std::shared_ptr<ShmWorld>>;

// A control plane that, when the job fails, also ends the waits in every host's shared memory.
class LinkedControlPlane : public ForwardingControlPlane {
 public:
  // `hosts` has one ShmWorld of each host, from any of its ranks.
  LinkedControlPlane(std::unique_ptr<ControlPlane> job, Worlds hosts)
      : ForwardingControlPlane(std::move(job)), hosts_(std::move(hosts)) {}

  void Fail(const absl::Status& failure) override {
    ForwardingControlPlane::Fail(failure);
    for (const std::shared_ptr<ShmWorld>& host : hosts_) host->FailWith(ForwardingControlPlane::failure());
  }

 private:
  const Worlds hosts_;
};

// Connects the ranks of each host through shared memory.
std::vector<Worlds> ConnectHosts(const HostMap& map, int size) {
  std::vector<Worlds> hosts;
  for (const std::vector<RankId>& ranks : map.hosts) {
    auto worlds = ShmWorld::ConnectInProcess(
        {.size = static_cast<int>(ranks.size()), .ranks = ranks, .job_size = size, .slot_bytes = kChunkBytes});
    if (!worlds.ok()) {
      ADD_FAILURE() << worlds.status();
      return {};
    }
    hosts.push_back(*std::move(worlds));
  }
  return hosts;
}

// Returns the flight recorders of all ranks. Each recorder is in the shared memory of its rank's host.
std::shared_ptr<FlightBoard> BoardOf(const HostMap& map, const std::vector<Worlds>& hosts, int size) {
  std::vector<FlightRecorder*> recorders;
  for (RankId rank = 0; rank < size; ++rank) {
    recorders.push_back(&hosts[PositionOf(map, rank).host].front()->flights()->Of(rank));
  }
  return std::make_shared<FlightBoard>(std::move(recorders), std::make_shared<std::vector<Worlds>>(hosts));
}

// State that the ranks of one job share.
struct Shared {
  std::shared_ptr<InProcessJob> job;
  std::shared_ptr<FlightBoard> flights;
};

// Returns one communicator for each of `ranks`. The communicators exchange messages.
std::vector<std::unique_ptr<Communicator>> ConnectMessages(const std::vector<RankId>& ranks, const Shared& shared,
                                                           uint64_t seed) {
  std::vector<Peer> peers;
  for (RankId rank : ranks) peers.push_back({.rank = rank, .host = "localhost", .pid = getpid()});
  std::vector<std::unique_ptr<Communicator>> communicators;
  for (std::unique_ptr<PointToPoint>& end : ConnectFakeMessages(static_cast<int>(ranks.size()), seed)) {
    communicators.push_back(std::make_unique<MessageCommunicator>(MessageCommunicator::Options{
        .messages = std::move(end), .peers = peers, .flights = shared.flights, .job_failure = [job = shared.job] {
          return job->failure();
        }}));
    communicators.back()->Tune({.chunk_bytes = kChunkBytes});
  }
  return communicators;
}

int SizeOf(const HostMap& map) {
  size_t size = 0;
  for (const std::vector<RankId>& ranks : map.hosts) size += ranks.size();
  return static_cast<int>(size);
}

}  // namespace

std::vector<Transport> ConnectHierarchicalTransports(const HostMap& map, uint64_t seed) {
  const int size = SizeOf(map);
  const std::vector<Worlds> hosts = ConnectHosts(map, size);
  if (hosts.empty()) return {};
  Worlds one_of_each;
  for (const Worlds& host : hosts) one_of_each.push_back(host.front());
  const Shared shared = {.job = std::make_shared<InProcessJob>(InProcessJob::Options{.size = size}),
                         .flights = BoardOf(map, hosts, size)};
  std::vector<std::unique_ptr<Communicator>> flat = ConnectMessages(Group::All(size).ranks(), shared, seed);
  std::vector<std::vector<std::unique_ptr<Communicator>>> across;
  for (int place = 0; place < SizesOf(map).least; ++place) {
    across.push_back(ConnectMessages(RanksAt(map, place), shared, ++seed));
  }
  std::vector<Transport> transports;
  for (RankId rank = 0; rank < size; ++rank) {
    const HostPosition self = PositionOf(map, rank);
    // Chunks are smaller than the default, so that smaller tensors take several chunks.
    HierarchicalCommunicator::Options levels = {.rank = rank, .hosts = map, .chunk_bytes = size_t{1} << 20};
    levels.local = std::make_unique<ShmCommunicator>(hosts[self.host][self.local_rank]);
    if (self.local_rank < static_cast<int>(across.size()))
      levels.across = std::move(across[self.local_rank][self.host]);
    levels.flat = std::move(flat[rank]);
    auto job = std::make_unique<InProcessControlPlane>(shared.job, rank);
    auto communicator = std::make_unique<HierarchicalCommunicator>(std::move(levels));
    const HostLevels of_communicator = communicator->levels();
    transports.push_back({.control = std::make_unique<LinkedControlPlane>(std::move(job), one_of_each),
                          .communicator = std::move(communicator),
                          .flights = shared.flights,
                          .levels = of_communicator});
  }
  return transports;
}

}  // namespace ronda::testing
