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
#include "runtime/collectives/inprocess/in_process_communicator.h"
#include "runtime/collectives/self/self_communicator.h"
#include "runtime/collectives/shm/shm_communicator.h"
#include "tests/testing/device_transports.h"
#include "tests/testing/message_transports.h"

namespace ronda::testing {
namespace {

#if defined(__SANITIZE_THREAD__)
constexpr bool kThreadSanitizer = true;
#else
constexpr bool kThreadSanitizer = false;
#endif

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

// A job whose ranks are to be connected.
struct Setup {
  BackendOptions options;
  HostMap hosts;
  uint64_t seed = 0;
};

using Across = DeviceHierarchyOptions::Across;

// The numbers of ranks with which a backend is tested.
bool Alone(int size) { return size == 1; }
bool Any(int) { return true; }
bool Several(int size) { return size > 1; }
// For layers below messages, or on top of another backend, more ranks would test nothing new.
bool TwoOrThree(int size) { return size == 2 || size == 3; }
bool UpToFour(int size) { return size <= 4; }
// Three ranks make hosts of different sizes, and four ranks make hosts of equal sizes. Eight ranks make three hosts,
// whose ranks are not consecutive.
bool ThreeOrFour(int size) { return size == 3 || size == 4; }
bool ThreeOrEight(int size) { return size == 3 || size == 8; }

// The facts that the test suites need about a backend. A new backend needs another line in kEntries.
struct Entry {
  Backend backend;
  const char* name;
  enum class Tensors { kOnHost, kOnDevice } tensors;
  enum class Hosts { kOne, kSeveral } hosts;
  bool (*is_meant_for)(int size);
  std::vector<Transport> (*connect)(const Setup& setup);
};
using Tensors = Entry::Tensors;
using Hosts = Entry::Hosts;

constexpr Entry kEntries[] = {
    {Backend::kSelf, "Self", Tensors::kOnHost, Hosts::kOne, Alone, [](const Setup&) { return ConnectSelf(); }},
    {Backend::kInProcess, "InProcess", Tensors::kOnHost, Hosts::kOne, Any,
     [](const Setup& setup) { return ConnectInProcess(setup.options); }},
    {Backend::kShm, "Shm", Tensors::kOnHost, Hosts::kOne, Any,
     [](const Setup& setup) { return ConnectShm(setup.options); }},
    {Backend::kShmSeparately, "ShmSeparately", Tensors::kOnHost, Hosts::kOne, Any,
     [](const Setup& setup) { return ConnectShmSeparately(setup.options); }},
    {Backend::kHierarchical, "Hierarchical", Tensors::kOnHost, Hosts::kSeveral, Several,
     [](const Setup& setup) { return ConnectHierarchicalTransports(setup.hosts, setup.seed); }},
    {Backend::kMpi, "Mpi", Tensors::kOnHost, Hosts::kOne, Any,
     [](const Setup& setup) { return ConnectMessageTransports(setup.options.size, setup.seed); }},
    {Backend::kTcp, "Tcp", Tensors::kOnHost, Hosts::kOne, TwoOrThree,
     [](const Setup& setup) { return ConnectTcpTransports(setup.options.size); }},
    {Backend::kStaged, "Staged", Tensors::kOnDevice, Hosts::kOne, UpToFour,
     [](const Setup& setup) { return ConnectStagedTransports(setup.options.size); }},
    {Backend::kNccl, "Nccl", Tensors::kOnDevice, Hosts::kOne, Any,
     [](const Setup& setup) { return ConnectNcclTransports(setup.options.size); }},
    {Backend::kNcclInRankOrder, "NcclInRankOrder", Tensors::kOnDevice, Hosts::kOne, UpToFour,
     [](const Setup& setup) { return ConnectNcclTransports(setup.options.size, SumOrder::kOfRanks); }},
    {Backend::kPeer, "Peer", Tensors::kOnDevice, Hosts::kOne, Any,
     [](const Setup& setup) { return ConnectPeerTransports(setup.options.size); }},
    {Backend::kHierarchicalStaged, "HierarchicalStaged", Tensors::kOnDevice, Hosts::kSeveral, ThreeOrFour,
     [](const Setup& setup) { return ConnectDeviceHierarchyTransports(setup.hosts, Across::kStaged, setup.seed); }},
    {Backend::kHierarchicalNccl, "HierarchicalNccl", Tensors::kOnDevice, Hosts::kSeveral, ThreeOrEight,
     [](const Setup& setup) { return ConnectDeviceHierarchyTransports(setup.hosts, Across::kNccl, setup.seed); }},
};

const Entry& EntryOf(Backend backend) {
  return *std::find_if(std::begin(kEntries), std::end(kEntries),
                       [&](const Entry& entry) { return entry.backend == backend; });
}

}  // namespace

std::string Name(Backend backend) { return EntryOf(backend).name; }

bool HasHosts(Backend backend) { return EntryOf(backend).hosts == Hosts::kSeveral; }

bool IsTestable(Backend backend, int size) {
  if (backend == Backend::kSelf) return size == 1;
  if (HasHosts(backend)) return size > 1;
  if (backend == Backend::kStaged || backend == Backend::kPeer) return HasDevices();
  const bool is_nccl = backend == Backend::kNccl || backend == Backend::kNcclInRankOrder;
  if (is_nccl && std::getenv(kRealPlugin) != nullptr) return HasNcclDevices(size);
  // ThreadSanitizer identifies memory by its address. So it would not see the synchronization between two mappings of
  // the same memory.
  return backend != Backend::kShmSeparately || !kThreadSanitizer;
}

HostMap HostsOf(Backend backend, int size) {
  HostMap map;
  if (!HasHosts(backend)) return map;
  // The sizes of the hosts may be equal or different, and their ranks consecutive or not.
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
