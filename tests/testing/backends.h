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
  kHierarchicalStaged,  // tensors of devices, on several hosts: a fake NCCL on each, kHierarchical's messages across
  kHierarchicalNccl,    // as kHierarchicalStaged, with a fake NCCL across hosts
};

std::string Name(Backend backend);

// Whether the backend treats hosts differently, and so needs two of them.
bool HasHosts(Backend backend);

// Whether `backend` can be tested with `size` ranks in this build.
bool IsTestable(Backend backend, int size);

// The hosts of the ranks of a job of `size`; empty if the backend does not distinguish hosts.
HostMap HostsOf(Backend backend, int size);

struct BackendOptions {
  int size = 1;
};

// Returns one transport per rank. If the ranks do not connect, fails the test and returns nothing.
// REQUIRES: IsTestable(backend, options.size).
std::vector<Transport> ConnectRanks(Backend backend, const BackendOptions& options);

// Tests of the guarantees that every backend gives, with several numbers of ranks.

struct BackendRanks {
  Backend backend;
  int size;
};

std::ostream& operator<<(std::ostream& out, const BackendRanks& parameter);

// Each backend for memory of the host with each of these numbers of ranks. Each backend must support at least one of
// the numbers.
std::vector<BackendRanks> EveryBackend(const std::vector<int>& sizes);

// EveryBackend, and the backends for memory of devices.
std::vector<BackendRanks> EveryBackendAndDevice(const std::vector<int>& sizes);

// EveryBackend without those that span several hosts.
std::vector<BackendRanks> EveryFlatBackend(const std::vector<int>& sizes);

// "Shm3"
std::string NameOfBackendRanks(const ::testing::TestParamInfo<BackendRanks>& info);

// A test with a job of connected ranks, which are threads of the test.
//
//   class MyTest : public BackendTest {};
//   INSTANTIATE_TEST_SUITE_P(Backends, MyTest, ::testing::ValuesIn(EveryBackend({1, 2, 5})), NameOfBackendRanks);
class BackendTest : public ::testing::TestWithParam<BackendRanks> {
 protected:
  void SetUp() override;
  // All ranks end their communicators at the same time, because some wait for each other.
  void TearDown() override;

  int size() const { return static_cast<int>(transports_.size()); }
  Transport& transport(RankId rank) { return transports_[rank]; }
  HostMap hosts() const { return HostsOf(GetParam().backend, GetParam().size); }

  // Runs body(rank, transport) on one thread per rank; a failed expectation in it names the rank.
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
