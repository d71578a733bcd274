// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_TESTS_RUNTIME_CONTROL_TREE_NODE_NETWORK_H_
#define RONDA_TESTS_RUNTIME_CONTROL_TREE_NODE_NETWORK_H_

#include <functional>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "runtime/control/tree/control_node.h"

namespace ronda::testing {

// The nodes of a job and the streams between them, in virtual time and without threads. The test delivers the pieces of
// the streams one at a time, each from a random stream.
class NodeNetwork {
 public:
  struct Options {
    int size = 2;
    int fan_out = 2;
    unsigned seed = 1;
    absl::Duration heartbeat_timeout = absl::Seconds(10);
    // Changes a rank's options.
    std::function<void(ControlNode::Options&)> adapt = nullptr;
  };

  explicit NodeNetwork(const Options& options)
      : tree_{.size = options.size, .fan_out = options.fan_out}, random_(options.seed) {
    std::vector<Peer> peers;
    for (RankId rank = 0; rank < options.size; ++rank) {
      peers.push_back({.rank = rank, .host = absl::StrCat("host", rank), .pid = 100 + rank});
    }
    for (RankId rank = 0; rank < options.size; ++rank) {
      ControlNode::Options node = {
          .rank = rank, .peers = peers, .tree = tree_, .heartbeat_timeout = options.heartbeat_timeout};
      if (options.adapt != nullptr) options.adapt(node);
      nodes_.push_back(std::make_unique<ControlNode>(std::move(node)));
    }
  }

  ControlNode& node(RankId rank) { return *nodes_[rank]; }
  int size() const { return tree_.size; }
  const ControlTree& tree() const { return tree_; }
  std::mt19937& random() { return random_; }
  absl::Duration now() const { return now_; }

  // Connects `rank` and its parent.
  void Connect(RankId rank) {
    const RankId parent = tree_.Parent(rank);
    node(parent).Attach(rank, now_);
    node(rank).Attach(parent, now_);
    streams_.insert({{rank, parent}, FrameAssembler(kMaxControlFrame)});
    streams_.insert({{parent, rank}, FrameAssembler(kMaxControlFrame)});
  }
  void ConnectAll() {
    for (RankId rank = 1; rank < size(); ++rank) Connect(rank);
    Deliver();
  }

  // Cut() breaks the stream between `rank` and its parent. After Silence(), the stream carries nothing more.
  void Cut(RankId rank) {
    const RankId parent = tree_.Parent(rank);
    Silence(rank);
    node(parent).Lose(rank);
    node(rank).Lose(parent);
  }
  void Silence(RankId rank) {
    streams_.erase({rank, tree_.Parent(rank)});
    streams_.erase({tree_.Parent(rank), rank});
  }

  // Delivers the next piece of one stream. Returns false if nothing is in flight.
  bool DeliverOne() {
    std::vector<std::pair<RankId, RankId>> order;
    for (const auto& [stream, unused] : streams_) order.push_back(stream);
    std::shuffle(order.begin(), order.end(), random_);
    for (const auto& stream : order) {
      const auto [from, to] = stream;
      const std::string piece = node(from).PopPiece(to);
      if (piece.empty()) continue;
      FrameAssembler& assembler = streams_.at(stream);
      assembler.Append(piece);
      for (std::string frame; *assembler.Next(&frame); ++frames_[stream]) node(to).Receive(from, frame, now_);
      return true;
    }
    return false;
  }
  void Deliver() {
    while (DeliverOne()) {
    }
  }

  // Lets time pass. Calls Tick() for each second, on the ranks in `alive`, or on all ranks if `alive` is empty.
  void Pass(absl::Duration time, const std::set<RankId>& alive = {}) {
    for (const absl::Duration end = now_ + time; now_ < end;) {
      now_ += absl::Seconds(1);
      for (RankId rank = 0; rank < size(); ++rank) {
        if (alive.empty() || alive.contains(rank)) node(rank).Tick(now_);
      }
      Deliver();
    }
  }

  // Returns how many frames from rank `from` have arrived at its neighbour `to`.
  int frames(RankId from, RankId to) { return frames_[{from, to}]; }

 private:
  const ControlTree tree_;
  std::mt19937 random_;
  std::vector<std::unique_ptr<ControlNode>> nodes_;
  std::map<std::pair<RankId, RankId>, FrameAssembler> streams_;  // by (from, to)
  std::map<std::pair<RankId, RankId>, int> frames_;
  absl::Duration now_ = absl::Hours(1);
};

}  // namespace ronda::testing

#endif  // RONDA_TESTS_RUNTIME_CONTROL_TREE_NODE_NETWORK_H_
