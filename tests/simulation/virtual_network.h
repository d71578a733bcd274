// Messages between the processes of a virtual world: they take time, and connections break.
#ifndef RONDA_TESTS_SIMULATION_VIRTUAL_NETWORK_H_
#define RONDA_TESTS_SIMULATION_VIRTUAL_NETWORK_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "runtime/collectives/messages/point_to_point.h"
#include "tests/simulation/virtual_threads.h"

namespace ronda::simulation {

// The network of a world. The messages of a sender to a receiver arrive in their order, each some time after it was
// sent. The end of a process breaks its connections: the others hear of it some time later, or never, as where a host
// has lost its power. A message that is under way when its connection breaks arrives by half.
//
// Used by virtual threads alone, one of which runs at a time: needs no lock. Outlives its ends.
class VirtualNetwork {
 public:
  struct Options {
    absl::Duration latency;  // the longest of a message, if nothing is wrong
    // In the message of this number, from 1, of those in meshes for tensors, a bit is changed: no network does that,
    // but whoever checks the values must find it. 0: none.
    uint64_t corrupted = 0;
  };
  explicit VirtualNetwork(const Options& options) : options_(options) {}

  // Tensors, or other things.
  enum class Use { kTensors, kControl };

  // The end of `rank` in the mesh of this name, which the calling process is to have. The ranks of a mesh may come in
  // any order; messages to one that has not come wait for it.
  std::unique_ptr<PointToPoint> Connect(const std::string& mesh, Use use, RankId rank, int size);

  // Faults. The connections between two processes are reset now, those that they will make are not.
  void Reset(ProcessId a, ProcessId b);
  // Nothing arrives between them before `until`; then all does that was sent.
  void Silence(ProcessId a, ProcessId b, absl::Duration until);
  // The process ends; its connections are reset, or stay silent for ever.
  enum class End { kReset, kSilence };
  void Drop(ProcessId process, End how);

  uint64_t messages() const { return messages_; }
  uint64_t halves() const { return halves_; }

 private:
  class PeerEnd;

  struct Message {
    std::string content;
    absl::Duration arrival;
  };
  // From one rank to another.
  struct Channel {
    std::deque<Message> under_way;
    uint64_t taken = 0;  // messages that have been received
    absl::Duration last_arrival = -absl::InfiniteDuration();
    absl::Duration broken_at = absl::InfiniteDuration();  // when its ends hear of it
  };
  struct Mesh {
    Use use;
    std::vector<ProcessId> processes;  // by rank; kNobody: has not come yet
    std::vector<Channel> channels;     // [from * size + to]
    int size() const { return static_cast<int>(processes.size()); }
    Channel& At(RankId from, RankId to) { return channels[static_cast<size_t>(from * size() + to)]; }
  };
  static constexpr ProcessId kNobody = -1;

  // Of the process' connections with `other`, or with all others if that is kNobody.
  void Break(ProcessId process, ProcessId other);
  absl::Duration Arrival(const Mesh& mesh, RankId from, RankId to) const;

  const Options options_;
  std::map<std::string, std::unique_ptr<Mesh>> meshes_;
  std::map<std::pair<ProcessId, ProcessId>, absl::Duration> silent_until_;
  uint64_t messages_ = 0;
  uint64_t tensor_messages_ = 0;
  uint64_t halves_ = 0;
};

}  // namespace ronda::simulation

#endif  // RONDA_TESTS_SIMULATION_VIRTUAL_NETWORK_H_
