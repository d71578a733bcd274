// SPDX-License-Identifier: Apache-2.0

// Simulates messages between the processes of a virtual world. Messages have latency, and connections can break.
#ifndef RONDA_TESTS_SIMULATION_VIRTUAL_NETWORK_H_
#define RONDA_TESTS_SIMULATION_VIRTUAL_NETWORK_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "runtime/point_to_point/point_to_point.h"
#include "tests/simulation/virtual_threads.h"

namespace ronda::simulation {

// The network of a virtual world. Messages from one sender to one receiver arrive in order, with a latency. When a
// process ends, its connections break. The other processes notice that some time later, or never if the host has lost
// power. When a connection breaks, half of the message in transit arrives.
//
// With kTcp, the ranks use production code (TcpMessages) over simulated sockets (virtual_sockets.h).
//
// Needs no lock, because only virtual threads use it, and only one of them runs at a time. Must outlive the objects
// that Connect returns.
class VirtualNetwork {
 public:
  enum class Transport { kMessages, kTcp };
  struct Options {
    Transport transport = Transport::kMessages;
    absl::Duration latency;  // the longest latency of a message, without faults
    // The number of the tensor message, counted from 1 over all meshes, in which the network flips one bit. The checks
    // of values must find that. 0 means none. Only for kMessages.
    uint64_t corrupted = 0;
  };
  explicit VirtualNetwork(const Options& options) : options_(options) {}

  // What a mesh carries: tensors, or other messages.
  enum class Use { kTensors, kControl };

  // Connects the calling process as `rank` to the mesh of this name. Ranks may connect in any order. Messages to a rank
  // wait until it has connected.
  std::unique_ptr<PointToPoint> Connect(const std::string& mesh, Use use, RankId rank, int size);

  // Faults. Resets the current connections between two processes, but not later ones.
  void Reset(ProcessId a, ProcessId b);
  // Delays the messages that the two processes send to each other from now on, so that none arrives before `until`.
  void Silence(ProcessId a, ProcessId b, absl::Duration until);
  // Ends the process's connections: resets them, or makes them silent for ever.
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
  // The messages from one rank to another.
  struct Channel {
    std::deque<Message> under_way;
    uint64_t taken = 0;  // messages that have been received
    absl::Duration last_arrival = -absl::InfiniteDuration();
    absl::Duration broken_at = absl::InfiniteDuration();  // when its ends notice the break
  };
  struct Mesh {
    Use use;
    std::vector<ProcessId> processes;  // by rank; kNobody: the rank has not connected yet
    std::vector<Channel> channels;     // [from * size + to]
    // The sockets between two ranks, that of the lower rank first. Only with kTcp.
    std::map<std::pair<RankId, RankId>, std::array<int, 2>> sockets;
    int size() const { return static_cast<int>(processes.size()); }
    ProcessId ProcessOf(RankId rank) const { return processes[static_cast<size_t>(rank)]; }
    Channel& At(RankId from, RankId to) { return channels[static_cast<size_t>(from * size() + to)]; }
  };
  static constexpr ProcessId kNobody = -1;

  std::unique_ptr<PointToPoint> ConnectSockets(Mesh* mesh, RankId rank) const;
  // Breaks the process's connections to `other`, or to all others if `other` is kNobody.
  void Break(ProcessId process, ProcessId other);
  absl::Duration Arrival(ProcessId from, ProcessId to) const;

  const Options options_;
  std::map<std::string, std::unique_ptr<Mesh>> meshes_;
  std::map<std::pair<ProcessId, ProcessId>, absl::Duration> silent_until_;
  uint64_t messages_ = 0;
  uint64_t tensor_messages_ = 0;
  uint64_t halves_ = 0;
};

}  // namespace ronda::simulation

#endif  // RONDA_TESTS_SIMULATION_VIRTUAL_NETWORK_H_
