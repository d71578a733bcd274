// SPDX-License-Identifier: Apache-2.0

#include "tests/simulation/virtual_network.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "runtime/base/logging.h"
#include "runtime/base/unique_fd.h"
#include "runtime/tcp/tcp_messages.h"
#include "tests/simulation/virtual_sockets.h"

namespace ronda::simulation {

// A request's fields hold its direction, its peer, and its message number.
class VirtualNetwork::PeerEnd : public PointToPoint {
 public:
  PeerEnd(VirtualNetwork* network, Mesh* mesh, RankId rank) : network_(*network), mesh_(*mesh), rank_(rank) {}

  RankId rank() const override { return rank_; }
  int size() const override { return mesh_.size(); }

  absl::StatusOr<Request> Send(const void* data, size_t bytes, RankId to) override {
    const VirtualWorld::Shield shield;
    VirtualWorld::Get().Look();
    Channel& channel = mesh_.At(rank_, to);
    ++network_.messages_;
    channel.last_arrival =
        std::max(channel.last_arrival, network_.Arrival(mesh_.ProcessOf(rank_), mesh_.ProcessOf(to)));
    std::string content(static_cast<const char*>(data), bytes);
    if (mesh_.use == Use::kTensors && ++network_.tensor_messages_ == network_.options_.corrupted) content.back() ^= 1;
    channel.under_way.push_back({.content = std::move(content), .arrival = channel.last_arrival});
    return Request{.words = {KeyOf(to, Side::kSender), sent_++}};
  }

  absl::StatusOr<Request> Receive(void* data, size_t bytes, RankId from) override {
    const VirtualWorld::Shield shield;
    VirtualWorld::Get().Look();
    const uint64_t number = asked_[from]++;
    buffers_[{from, number}] = {.data = data, .bytes = bytes};
    return Request{.words = {KeyOf(from, Side::kReceiver), number}};
  }

  absl::StatusOr<bool> Test(absl::Span<Request> requests) override {
    const VirtualWorld::Shield shield;
    VirtualWorld::Get().Look();
    bool all = true;
    for (const Request& request : requests) {
      const auto peer = static_cast<RankId>(request.words[0] >> 1);
      const bool is_receipt = (request.words[0] & 1) != 0;
      if (is_receipt) ReceiveArrived(peer);
      if (is_receipt && !buffers_.contains({peer, request.words[1]})) continue;  // it has been received
      if (VirtualWorld::Get().now() >= mesh_.At(peer, rank_).broken_at) return Broken(peer);
      all = all && !is_receipt;  // a message that is sent is copied at once
    }
    return all;
  }

 private:
  enum class Side : uint64_t { kSender = 0, kReceiver = 1 };
  struct Buffer {
    void* data;
    size_t bytes;
  };

  static uint64_t KeyOf(RankId peer, Side side) {
    return static_cast<uint64_t>(peer) << 1 | static_cast<uint64_t>(side);
  }

  // Copies data that has arrived from `peer` to the buffers that wait for it.
  void ReceiveArrived(RankId peer) {
    Channel& channel = mesh_.At(peer, rank_);
    while (!channel.under_way.empty() && channel.under_way.front().arrival <= VirtualWorld::Get().now()) {
      const auto buffer = buffers_.find({peer, channel.taken});
      if (buffer == buffers_.end()) return;
      const Message& message = channel.under_way.front();
      RONDA_CHECK(message.content.size() == buffer->second.bytes);
      std::memcpy(buffer->second.data, message.content.data(), message.content.size());
      buffers_.erase(buffer);
      channel.under_way.pop_front();
      ++channel.taken;
    }
  }

  // Delivers half of the message in transit, and returns the error of the broken connection.
  absl::Status Broken(RankId peer) {
    Channel& channel = mesh_.At(peer, rank_);
    const auto buffer = buffers_.find({peer, channel.taken});
    if (!channel.under_way.empty() && buffer != buffers_.end()) {
      const std::string& content = channel.under_way.front().content;
      std::memcpy(buffer->second.data, content.data(), std::min(content.size(), buffer->second.bytes) / 2);
      channel.under_way.clear();
      ++network_.halves_;
    }
    return absl::UnavailableError("connection reset by peer");
  }

  VirtualNetwork& network_;
  Mesh& mesh_;
  const RankId rank_;
  uint64_t sent_ = 0;
  std::map<RankId, uint64_t> asked_;
  std::map<std::pair<RankId, uint64_t>, Buffer> buffers_;
};

std::unique_ptr<PointToPoint> VirtualNetwork::Connect(const std::string& name, Use use, RankId rank, int size) {
  const VirtualWorld::Shield shield;
  std::unique_ptr<Mesh>& mesh = meshes_[name];
  if (mesh == nullptr) {
    mesh = std::make_unique<Mesh>();
    mesh->use = use;
    mesh->processes.assign(static_cast<size_t>(size), kNobody);
    mesh->channels.resize(static_cast<size_t>(size) * static_cast<size_t>(size));
  }
  RONDA_CHECK(mesh->size() == size);
  mesh->processes[static_cast<size_t>(rank)] = VirtualWorld::Get().current_process();
  if (options_.transport == Transport::kTcp) return ConnectSockets(mesh.get(), rank);
  return std::make_unique<PeerEnd>(this, mesh.get(), rank);
}

std::unique_ptr<PointToPoint> VirtualNetwork::ConnectSockets(Mesh* mesh, RankId rank) const {
  VirtualSockets& sockets = VirtualSockets::Get();
  std::vector<UniqueFd> own(static_cast<size_t>(mesh->size()));
  for (RankId peer = 0; peer < mesh->size(); ++peer) {
    if (peer == rank) continue;
    const auto [pair, is_new] = mesh->sockets.try_emplace(std::minmax(rank, peer));
    if (is_new) pair->second = sockets.Connect([this](ProcessId from, ProcessId to) { return Arrival(from, to); });
    const int socket = pair->second[rank < peer ? 0 : 1];
    sockets.Give(socket, VirtualWorld::Get().current_process());
    own[static_cast<size_t>(peer)].Reset(socket);
  }
  return std::make_unique<TcpMessages>(rank, std::move(own));
}

absl::Duration VirtualNetwork::Arrival(ProcessId from, ProcessId to) const {
  VirtualWorld& world = VirtualWorld::Get();
  absl::Duration leaves = world.now();
  if (const auto silence = silent_until_.find(std::minmax(from, to)); silence != silent_until_.end()) {
    leaves = std::max(leaves, silence->second);
  }
  return leaves + world.RandomDuration(options_.latency);
}

void VirtualNetwork::Break(ProcessId process, ProcessId other) {
  VirtualWorld& world = VirtualWorld::Get();
  for (auto& [name, mesh] : meshes_) {
    for (RankId a = 0; a < mesh->size(); ++a) {
      if (mesh->processes[static_cast<size_t>(a)] != process) continue;
      for (RankId b = 0; b < mesh->size(); ++b) {
        if (a == b || (other != kNobody && mesh->processes[static_cast<size_t>(b)] != other)) continue;
        if (const auto pair = mesh->sockets.find(std::minmax(a, b)); pair != mesh->sockets.end()) {
          VirtualSockets::Get().Reset(pair->second[0]);
        }
        for (Channel* channel : {&mesh->At(a, b), &mesh->At(b, a)}) {
          channel->broken_at = std::min(channel->broken_at, world.now() + world.RandomDuration(options_.latency));
        }
      }
    }
  }
}

void VirtualNetwork::Reset(ProcessId a, ProcessId b) { Break(a, b); }

void VirtualNetwork::Silence(ProcessId a, ProcessId b, absl::Duration until) {
  absl::Duration& silent_until = silent_until_[std::minmax(a, b)];
  silent_until = std::max(silent_until, until);
}

void VirtualNetwork::Drop(ProcessId process, End how) {
  if (options_.transport == Transport::kTcp) {
    VirtualSockets::Get().Drop(process,
                               how == End::kReset ? VirtualSockets::End::kClose : VirtualSockets::End::kSilence);
  } else if (how == End::kReset) {
    Break(process, kNobody);
  }
}

}  // namespace ronda::simulation
