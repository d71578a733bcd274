// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_TESTS_TESTING_BACKENDS_H_
#define RONDA_TESTS_TESTING_BACKENDS_H_

#include <gtest/gtest.h>

#include <ostream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "runtime/base/types.h"
#include "runtime/collectives/host_map.h"
#include "runtime/collectives/transport.h"
#include "tests/testing/run_ranks.h"

namespace ronda::testing {

// A backend that can run a job whose ranks are threads of one test. `name` is the name of its entry in backends.cc. A
// backend needs a constant here only if a test refers to it.
struct Backend {
  absl::string_view name;

  friend bool operator==(Backend a, Backend b) { return a.name == b.name; }

  static const Backend kSelf;
  static const Backend kInProcess;
  static const Backend kShm;
  static const Backend kShmSeparately;
  static const Backend kHierarchical;
  static const Backend kNccl;
  static const Backend kHierarchicalStaged;
  static const Backend kHierarchicalNccl;
};
inline constexpr Backend Backend::kSelf = {"Self"};
inline constexpr Backend Backend::kInProcess = {"InProcess"};
inline constexpr Backend Backend::kShm = {"Shm"};
inline constexpr Backend Backend::kShmSeparately = {"ShmSeparately"};
inline constexpr Backend Backend::kHierarchical = {"Hierarchical"};
inline constexpr Backend Backend::kNccl = {"Nccl"};
inline constexpr Backend Backend::kHierarchicalStaged = {"HierarchicalStaged"};
inline constexpr Backend Backend::kHierarchicalNccl = {"HierarchicalNccl"};

std::string Name(Backend backend);

// Returns whether the backend treats ranks on other hosts differently, so that its tests need at least two hosts.
bool HasHosts(Backend backend);

// Returns whether a rank learns at once that a rank for which it waits has left.
bool SaysWhoHasLeft(Backend backend);

// Returns whether `backend` can be tested with `size` ranks in this build.
bool IsTestable(Backend backend, int size);

// Returns which ranks of a job of `size` ranks are on which host, or an empty map if the backend ignores hosts.
HostMap HostsOf(Backend backend, int size);

struct BackendOptions {
  int size = 1;
};

// Returns one transport per rank. If the ranks do not connect, fails the test and returns an empty list.
// REQUIRES: IsTestable(backend, options.size).
std::vector<Transport> ConnectRanks(Backend backend, const BackendOptions& options);

// The rest of this header is for tests that run on all backends, with several numbers of ranks. Such a test checks what
// every backend guarantees.

struct BackendRanks {
  Backend backend;
  int size;
};

std::ostream& operator<<(std::ostream& out, const BackendRanks& parameter);

// Returns every backend for host memory, with each number of ranks in `sizes` that suits it. Leaves out backends that
// no number suits.
std::vector<BackendRanks> EveryBackend(const std::vector<int>& sizes);

// Like EveryBackend, but also returns the backends for device memory.
std::vector<BackendRanks> EveryBackendAndDevice(const std::vector<int>& sizes);

// Like EveryBackend, but without the backends that span several hosts.
std::vector<BackendRanks> EveryFlatBackend(const std::vector<int>& sizes);

// Returns a name such as "Shm3".
std::string NameOfBackendRanks(const ::testing::TestParamInfo<BackendRanks>& info);

// A fixture with a job of connected ranks. Each rank is a thread of the test.
//
//   class MyTest : public BackendTest {};
//   INSTANTIATE_TEST_SUITE_P(Backends, MyTest, ::testing::ValuesIn(EveryBackend({1, 2, 5})), NameOfBackendRanks);
class BackendTest : public ::testing::TestWithParam<BackendRanks> {
 protected:
  void SetUp() override;
  // Destroys the communicators of all ranks at the same time, because some destructors wait for the other ranks.
  void TearDown() override;

  int size() const { return static_cast<int>(transports_.size()); }
  Transport& transport(RankId rank) { return transports_[rank]; }
  HostMap hosts() const { return HostsOf(GetParam().backend, GetParam().size); }

  // Runs body(rank, transport) on one thread per rank. If an expectation in `body` fails, its message names the rank.
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
