// SPDX-License-Identifier: Apache-2.0

#include "tests/testing/backends.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <iterator>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/logging.h"
#include "runtime/collectives/inprocess/in_process_communicator.h"
#include "runtime/collectives/self/self_communicator.h"
#include "runtime/collectives/shm/shm_communicator.h"
#include "tests/testing/device_transports.h"
#include "tests/testing/message_transports.h"

namespace ronda::testing {
namespace {

std::string UniqueJobId() {
  static std::atomic<int> jobs{0};
  return absl::StrCat("test-", getpid(), "-", jobs.fetch_add(1));
}

std::vector<Transport> ConnectSelf() {
  std::vector<Transport> transports;
  transports.push_back(CreateSelfTransport("localhost"));
  return transports;
}

std::vector<Transport> ConnectInProcess(const BackendOptions& options) {
  const auto world = InProcessWorld::Create({.size = options.size});
  std::vector<Transport> transports;
  transports.reserve(options.size);
  for (RankId rank = 0; rank < options.size; ++rank) transports.push_back(world->Connect(rank));
  return transports;
}

std::vector<Transport> ConnectShm(const BackendOptions& options) {
  absl::StatusOr<std::vector<Transport>> transports =
      ConnectShmTransportsInProcess({.size = options.size, .slot_bytes = 4096, .slot_count = 3});
  if (transports.ok()) return *std::move(transports);
  ADD_FAILURE() << transports.status();
  return {};
}

std::vector<Transport> ConnectShmSeparately(const BackendOptions& options) {
  ShmWorld::Options shm = {.job_id = UniqueJobId(), .size = options.size};
  std::vector<absl::StatusOr<Transport>> connected(options.size);
  std::vector<std::thread> threads;
  for (shm.rank = 0; shm.rank < shm.size; ++shm.rank) {
    threads.emplace_back([shm, &connected] { connected[shm.rank] = ConnectShmTransport(shm); });
  }
  for (std::thread& thread : threads) thread.join();
  std::vector<Transport> transports;
  for (absl::StatusOr<Transport>& transport : connected) {
    if (transport.ok()) {
      transports.push_back(*std::move(transport));
    } else {
      ADD_FAILURE() << transport.status();
    }
  }
  return transports;
}

// The job whose ranks Entry::connect connects.
struct Setup {
  BackendOptions options;
  HostMap hosts;
  uint64_t seed = 0;
};

using Across = DeviceHierarchyOptions::Across;

// Predicates for the numbers of ranks that a backend is tested with.
bool Alone(int size) { return size == 1; }
bool Any(int) { return true; }
bool Several(int size) { return size > 1; }
// "Tcp" differs from "Mpi" only below the interface for messages, so tests with more than three ranks would show
// nothing new.
bool TwoOrThree(int size) { return size == 2 || size == 3; }
bool UpToFour(int size) { return size <= 4; }
// With three ranks, the two hosts have different sizes; with four, the same size. With eight ranks there are three
// hosts, and the ranks on a host are not consecutive.
bool ThreeOrFour(int size) { return size == 3 || size == 4; }
bool ThreeOrEight(int size) { return size == 3 || size == 8; }

#if defined(__SANITIZE_THREAD__)
constexpr bool kThreadSanitizer = true;
#else
constexpr bool kThreadSanitizer = false;
#endif

// ThreadSanitizer identifies memory by its address, so it does not see synchronization between two mappings of the same
// memory.
bool MayMapTwice(int) { return !kThreadSanitizer; }
bool NeedsDevices(int) { return HasDevices(); }
bool NeedsNccl(int size) { return std::getenv(kRealPlugin) == nullptr || HasNcclDevices(size); }

// What the test suites need to know about a backend. A new backend needs a new entry in kEntries.
struct Entry {
  Backend backend;
  enum class Tensors { kOnHost, kOnDevice } tensors = Tensors::kOnHost;
  // Whether the backend treats ranks on other hosts differently, so that its tests need at least two hosts.
  enum class Hosts { kOne, kSeveral } hosts = Hosts::kOne;
  bool says_who_has_left = true;
  bool (*is_testable)(int size) = Any;   // in this build
  bool (*is_meant_for)(int size) = Any;  // the numbers of ranks in the test suites of all backends
  std::vector<Transport> (*connect)(const Setup& setup);
};
using Tensors = Entry::Tensors;
using Hosts = Entry::Hosts;

constexpr Entry kEntries[] = {
    {.backend = {"Self"},
     .is_testable = Alone,
     .is_meant_for = Alone,
     .connect = [](const Setup&) { return ConnectSelf(); }},
    {.backend = {"InProcess"}, .connect = [](const Setup& setup) { return ConnectInProcess(setup.options); }},
    // All ranks share one mapping. The slots are so small that even little data takes many chunks.
    {.backend = {"Shm"}, .connect = [](const Setup& setup) { return ConnectShm(setup.options); }},
    // Each rank maps the memory separately, as processes do.
    {.backend = {"ShmSeparately"},
     .is_testable = MayMapTwice,
     .connect = [](const Setup& setup) { return ConnectShmSeparately(setup.options); }},
    // Shared memory within a host, and messages between hosts.
    {.backend = {"Hierarchical"},
     .hosts = Hosts::kSeveral,
     .is_testable = Several,
     .is_meant_for = Several,
     .connect = [](const Setup& setup) { return ConnectHierarchicalTransports(setup.hosts, setup.seed); }},
    // Messages between all ranks, with random delays and small chunks.
    {.backend = {"Mpi"},
     .says_who_has_left = false,
     .connect = [](const Setup& setup) { return ConnectMessageTransports(setup.options.size, setup.seed); }},
    {.backend = {"Tcp"},
     .says_who_has_left = false,
     .is_meant_for = TwoOrThree,
     .connect = [](const Setup& setup) { return ConnectTcpTransports(setup.options.size); }},
    // Device tensors are copied through small slots of pinned memory, and travel as in InProcess.
    {.backend = {"Staged"},
     .tensors = Tensors::kOnDevice,
     .is_testable = NeedsDevices,
     .is_meant_for = UpToFour,
     .connect = [](const Setup& setup) { return ConnectStagedTransports(setup.options.size); }},
    // Device tensors travel through NCCL. Each rank has its own device.
    {.backend = {"Nccl"},
     .tensors = Tensors::kOnDevice,
     .is_testable = NeedsNccl,
     .connect = [](const Setup& setup) { return ConnectNcclTransports(setup.options.size); }},
    {.backend = {"NcclInRankOrder"},
     .tensors = Tensors::kOnDevice,
     .is_testable = NeedsNccl,
     .is_meant_for = UpToFour,
     .connect = [](const Setup& setup) { return ConnectNcclTransports(setup.options.size, SumOrder::kOfRanks); }},
    // Device tensors travel through small slots. Ranks share devices, and the devices map each other's memory.
    {.backend = {"Peer"},
     .tensors = Tensors::kOnDevice,
     .is_testable = NeedsDevices,
     .connect = [](const Setup& setup) { return ConnectPeerTransports(setup.options.size); }},
    // Device tensors travel through a fake NCCL within a host, and as the messages of Hierarchical between hosts.
    {.backend = {"HierarchicalStaged"},
     .tensors = Tensors::kOnDevice,
     .hosts = Hosts::kSeveral,
     .is_testable = Several,
     .is_meant_for = ThreeOrFour,
     .connect =
         [](const Setup& setup) { return ConnectDeviceHierarchyTransports(setup.hosts, Across::kStaged, setup.seed); }},
    // Like HierarchicalStaged, but with a fake NCCL between hosts too.
    {.backend = {"HierarchicalNccl"},
     .tensors = Tensors::kOnDevice,
     .hosts = Hosts::kSeveral,
     .is_testable = Several,
     .is_meant_for = ThreeOrEight,
     .connect =
         [](const Setup& setup) { return ConnectDeviceHierarchyTransports(setup.hosts, Across::kNccl, setup.seed); }},
};

const Entry& EntryOf(Backend backend) {
  const auto* const entry = std::find_if(std::begin(kEntries), std::end(kEntries),
                                         [&](const Entry& each) { return each.backend == backend; });
  RONDA_CHECK(entry != std::end(kEntries));
  return *entry;
}

}  // namespace

std::string Name(Backend backend) { return std::string(backend.name); }

bool HasHosts(Backend backend) { return EntryOf(backend).hosts == Hosts::kSeveral; }

bool SaysWhoHasLeft(Backend backend) { return EntryOf(backend).says_who_has_left; }

bool IsTestable(Backend backend, int size) { return EntryOf(backend).is_testable(size); }

HostMap HostsOf(Backend backend, int size) {
  HostMap map;
  if (!HasHosts(backend)) return map;
  // Depending on `size`, the hosts have the same number of ranks or not, and their ranks are consecutive or not.
  const int hosts = size == 8 ? 3 : 2;
  map.hosts.resize(hosts);
  for (RankId rank = 0; rank < size; ++rank) map.hosts[size == 8 ? rank % hosts : rank * hosts / size].push_back(rank);
  return map;
}

std::vector<Transport> ConnectRanks(Backend backend, const BackendOptions& options) {
  return EntryOf(backend).connect(
      {.options = options, .hosts = HostsOf(backend, options.size), .seed = static_cast<uint64_t>(options.size)});
}

std::ostream& operator<<(std::ostream& out, const BackendRanks& parameter) {
  return out << Name(parameter.backend) << " with " << parameter.size << " ranks";
}

std::vector<BackendRanks> EveryBackend(const std::vector<int>& sizes) {
  std::vector<BackendRanks> all;
  for (const Entry& entry : kEntries) {
    for (int size : sizes) {
      if (entry.tensors == Tensors::kOnHost && entry.is_meant_for(size)) all.push_back({entry.backend, size});
    }
  }
  return all;
}

std::vector<BackendRanks> EveryBackendAndDevice(const std::vector<int>& sizes) {
  std::vector<BackendRanks> all = EveryBackend(sizes);
  for (int size : sizes) {
    for (const Entry& entry : kEntries) {
      if (entry.tensors == Tensors::kOnDevice && entry.is_meant_for(size)) all.push_back({entry.backend, size});
    }
  }
  return all;
}

std::vector<BackendRanks> EveryFlatBackend(const std::vector<int>& sizes) {
  std::vector<BackendRanks> flat = EveryBackend(sizes);
  std::erase_if(flat, [](const BackendRanks& ranks) { return ranks.backend == Backend::kHierarchical; });
  return flat;
}

std::string NameOfBackendRanks(const ::testing::TestParamInfo<BackendRanks>& info) {
  return absl::StrCat(Name(info.param.backend), info.param.size);
}

void BackendTest::SetUp() {
  const auto [backend, size] = GetParam();
  if (!IsTestable(backend, size)) GTEST_SKIP() << GetParam() << " cannot be tested here";
  transports_ = ConnectRanks(backend, {.size = size});
  ASSERT_EQ(transports_.size(), static_cast<size_t>(size));
}

void BackendTest::TearDown() {
  OnEveryRank([](RankId, Transport& transport) { transport.communicator.reset(); });
}

}  // namespace ronda::testing
