// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_TESTS_TESTING_FAKE_NCCL_MAILBOXES_H_
#define RONDA_TESTS_TESTING_FAKE_NCCL_MAILBOXES_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "runtime/shm/doorbell.h"

namespace ronda::testing {

// The head of a transfer, which precedes its data. The sender and the receiver must have equal heads.
struct TransferHead {
  uint64_t bytes = 0;
  uint64_t path = 0;  // an encoded NcclPath

  friend bool operator==(const TransferHead&, const TransferHead&) = default;
};
std::string ToString(const TransferHead& head);

// What NCCL knows about the location of a rank's device.
struct DevicePlace {
  char host[64];  // NCCL_HOSTID; empty: this machine
  char pci_bus[16];
  char uuid[40];  // empty: not known
};

// One end, sending or receiving, of a transfer between two ranks.
struct Transfer {
  enum class Way : uint8_t { kSend, kReceive } way = Way::kSend;
  int peer = 0;
  char* data = nullptr;
  TransferHead own;
  uint64_t done = 0;    // bytes of the head and the data
  TransferHead passed;  // the head that was received, or is sent
};

// A ring buffer from every rank of a communicator to every rank, in named shared memory. Data from one rank to another
// arrives in the order in which it was sent.
//
// Thread-safe, but only one thread at a time can call Run() for a rank.
class Mailboxes {
 public:
  // Opens the mailboxes; the first rank to do so creates them. All ranks of a process share one mapping.
  static std::shared_ptr<Mailboxes> Open(const std::string& name, int ranks);
  ~Mailboxes();

  const std::string& name() const { return name_; }

  // Records that a rank has joined, and where its device is. The last rank unlinks the shared memory.
  void Join(int rank, const DevicePlace& place);
  bool AllHaveJoined() const;
  // Returns where the device of a rank is, once the rank has joined.
  DevicePlace& PlaceOf(int rank) const;
  void Finalize();
  bool AllHaveFinalized() const;
  // Connect() records that one more rank has connected. AllHaveConnected() returns whether all ranks have connected
  // `nth` times.
  void Connect();
  bool AllHaveConnected(int nth) const;

  // Post() shows a number to all ranks, and returns how many times this rank has called it. AllHavePosted() returns
  // whether all ranks have posted at least `nth` numbers. Posted() returns a rank's last number.
  int Post(int rank, uint64_t number);
  bool AllHavePosted(int nth) const;
  uint64_t Posted(int rank) const { return PostOf(rank).number.load(); }

  // Runs all transfers at the same time, but transfers from one rank to another in order. Returns false if `gives_up`
  // is set. WakeUp() makes Run check `gives_up`. If the heads at the two ends differ, both ends report this (reports.h)
  // and hang.
  bool Run(int self, std::vector<Transfer> transfers, const std::atomic<bool>& gives_up);
  void WakeUp(int rank);

 private:
  static constexpr uint64_t kRingBytes = 32 << 10;
  struct Header {
    std::atomic<int> joined;
    std::atomic<int> finalized;
    std::atomic<int> connected;
  };
  struct LastPost {
    std::atomic<int> count;
    std::atomic<uint64_t> number;
  };
  struct alignas(64) Ring {
    std::atomic<uint64_t> written;
    alignas(64) std::atomic<uint64_t> read;
    alignas(64) char data[kRingBytes];
  };

  Mailboxes(std::string name, int ranks, void* memory) : name_(std::move(name)), ranks_(ranks), memory_(memory) {}

  static size_t BytesFor(int ranks);
  Header& header() const { return *static_cast<Header*>(memory_); }
  Doorbell& DoorbellOf(int rank) const;
  Ring& RingOf(int from, int to) const;
  LastPost& PostOf(int rank) const;
  enum class Progress : uint8_t { kNone, kSome, kHeadsDiffer };
  Progress Advance(int self, Transfer& transfer);

  const std::string name_;
  const int ranks_;
  void* const memory_;
};

}  // namespace ronda::testing

#endif  // RONDA_TESTS_TESTING_FAKE_NCCL_MAILBOXES_H_
