// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_TESTS_TESTING_BACKENDS_H_
#define RONDA_TESTS_TESTING_BACKENDS_H_

#include <gtest/gtest.h>

#include <ostream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/types.h"
#include "runtime/collectives/host_map.h"
#include "runtime/collectives/transport.h"
#include "tests/testing/run_ranks.h"

namespace ronda::testing {

// Backends that can run a job whose ranks are threads of one test.
enum class Backend {
  kSelf,  // one rank only
  kInProcess,
  kShm,                 // one mapping for all ranks, and slots so small that little data needs many chunks
  kShmSeparately,       // each rank maps the memory separately, as processes do
  kHierarchical,        // several hosts: shared memory on each, messages across
  kMpi,                 // messages between all ranks, with varying delay, in small chunks
  kTcp,                 // as kMpi, but over TCP
  kStaged,              // tensors of devices, through small slots of pinned memory, to kInProcess
  kNccl,                // tensors of devices, one device per rank, through a fake NCCL
  kNcclInRankOrder,     // as kNccl, with SumOrder::kOfRanks
  kPeer,                // tensors of devices that ranks share and that map each other's memory, through small slots
  kHierarchicalStaged,  // tensors of devices, on several hosts: a fake NCCL on each, kHierarchical's messages across
  kHierarchicalNccl,    // as kHierarchicalStaged, with a fake NCCL across hosts
};

std::string Name(Backend backend);

// Returns whether the backend treats ranks of other hosts differently, and so needs at least two hosts.
bool HasHosts(Backend backend);

// Returns whether `backend` can be tested with `size` ranks in this build.
bool IsTestable(Backend backend, int size);

// Returns the hosts of the ranks of a job of `size`; empty if the backend does not distinguish hosts.
HostMap HostsOf(Backend backend, int size);

struct BackendOptions {
  int size = 1;
};

// Returns one transport per rank. If the ranks do not connect, fails the test and returns an empty list.
// REQUIRES: IsTestable(backend, options.size).
std::vector<Transport> ConnectRanks(Backend backend, const BackendOptions& options);

// The rest of this header is for tests of the guarantees that every backend gives, with several numbers of ranks.

struct BackendRanks {
  Backend backend;
  int size;
};

std::ostream& operator<<(std::ostream& out, const BackendRanks& parameter);

// Returns each backend for host memory with each of the numbers of ranks in `sizes` that it supports. A backend must
// support at least one number.
std::vector<BackendRanks> EveryBackend(const std::vector<int>& sizes);

// Returns the results of EveryBackend, and the backends for device memory.
std::vector<BackendRanks> EveryBackendAndDevice(const std::vector<int>& sizes);

// Returns the results of EveryBackend without the backends that span several hosts.
std::vector<BackendRanks> EveryFlatBackend(const std::vector<int>& sizes);

// Returns a name such as "Shm3".
std::string NameOfBackendRanks(const ::testing::TestParamInfo<BackendRanks>& info);

// A test with a job of connected ranks, which are threads of the test.
//
//   class MyTest : public BackendTest {};
//   INSTANTIATE_TEST_SUITE_P(Backends, MyTest, ::testing::ValuesIn(EveryBackend({1, 2, 5})), NameOfBackendRanks);
class BackendTest : public ::testing::TestWithParam<BackendRanks> {
 protected:
  void SetUp() override;
  // Ends the communicators of all ranks at the same time, because some communicators wait for each other.
  void TearDown() override;

  int size() const { return static_cast<int>(transports_.size()); }
  Transport& transport(RankId rank) { return transports_[rank]; }
  HostMap hosts() const { return HostsOf(GetParam().backend, GetParam().size); }

  // Runs body(rank, transport) on one thread per rank. The text of an expectation that fails in `body` names the rank.
  template <typename Body>
  void OnEveryRank(const Body& body) {
    RunRanksOn(transports_, [&](RankId rank, Transport& transport) {
      SCOPED_TRACE(absl::StrCat("rank ", rank));
      body(rank, transport);
    });
  }

 private:
  std::vector<Transport> transports_;
};

}  // namespace ronda::testing

#endif  // RONDA_TESTS_TESTING_BACKENDS_H_
