#include "tests/testing/backends.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
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

}  // namespace

std::string Name(Backend backend) {
  switch (backend) {
    case Backend::kSelf:
      return "Self";
    case Backend::kInProcess:
      return "InProcess";
    case Backend::kShm:
      return "Shm";
    case Backend::kShmSeparately:
      return "ShmSeparately";
    case Backend::kHierarchical:
      return "Hierarchical";
    case Backend::kMpi:
      return "Mpi";
    case Backend::kTcp:
      return "Tcp";
    case Backend::kStaged:
      return "Staged";
    case Backend::kNccl:
      return "Nccl";
    case Backend::kHierarchicalStaged:
      return "HierarchicalStaged";
    case Backend::kHierarchicalNccl:
      return "HierarchicalNccl";
  }
  return "";
}

bool HasHosts(Backend backend) {
  return backend == Backend::kHierarchical || backend == Backend::kHierarchicalStaged ||
         backend == Backend::kHierarchicalNccl;
}

bool IsTestable(Backend backend, int size) {
  if (backend == Backend::kSelf) return size == 1;
  if (HasHosts(backend)) return size > 1;
  if (backend == Backend::kStaged) return HasDevices();
  // ThreadSanitizer knows memory by its address: it would see no synchronisation between two mappings of one word.
  return backend != Backend::kShmSeparately || !kThreadSanitizer;
}

HostMap HostsOf(Backend backend, int size) {
  HostMap map;
  if (!HasHosts(backend)) return map;
  // Of equal sizes and not, and with ranks in order and not.
  const int hosts = size == 8 ? 3 : 2;
  map.hosts.resize(hosts);
  for (RankId rank = 0; rank < size; ++rank) map.hosts[size == 8 ? rank % hosts : rank * hosts / size].push_back(rank);
  return map;
}

std::vector<Transport> ConnectRanks(Backend backend, const BackendOptions& options) {
  using Across = DeviceHierarchyOptions::Across;
  const HostMap hosts = HostsOf(backend, options.size);
  const auto seed = static_cast<uint64_t>(options.size);
  switch (backend) {
    case Backend::kSelf:
      return ConnectSelf();
    case Backend::kInProcess:
      return ConnectInProcess(options);
    case Backend::kShm:
      return ConnectShm(options);
    case Backend::kShmSeparately:
      return ConnectShmSeparately(options);
    case Backend::kHierarchical:
      return ConnectHierarchicalTransports(hosts, seed);
    case Backend::kMpi:
      return ConnectMessageTransports(options.size, seed);
    case Backend::kTcp:
      return ConnectTcpTransports(options.size);
    case Backend::kStaged:
      return ConnectStagedTransports(options.size);
    case Backend::kNccl:
      return ConnectNcclTransports(options.size);
    case Backend::kHierarchicalStaged:
      return ConnectDeviceHierarchyTransports(hosts, Across::kStaged, seed);
    case Backend::kHierarchicalNccl:
      return ConnectDeviceHierarchyTransports(hosts, Across::kNccl, seed);
  }
  return {};
}

namespace {

// Whether the two make sense together anywhere.
bool IsMeantFor(Backend backend, int size) {
  if (backend == Backend::kSelf) return size == 1;
  // More ranks find nothing new in what is below messages.
  if (backend == Backend::kTcp) return size == 2 || size == 3;
  return !HasHosts(backend) || size > 1;
}

}  // namespace

std::ostream& operator<<(std::ostream& out, const BackendRanks& parameter) {
  return out << Name(parameter.backend) << " with " << parameter.size << " ranks";
}

std::vector<BackendRanks> EveryBackend(const std::vector<int>& sizes) {
  std::vector<BackendRanks> all;
  for (Backend backend : {Backend::kSelf, Backend::kInProcess, Backend::kShm, Backend::kShmSeparately,
                          Backend::kHierarchical, Backend::kMpi, Backend::kTcp}) {
    for (int size : sizes) {
      if (IsMeantFor(backend, size)) all.push_back({backend, size});
    }
  }
  return all;
}

std::vector<BackendRanks> EveryBackendAndDevice(const std::vector<int>& sizes) {
  std::vector<BackendRanks> all = EveryBackend(sizes);
  for (int size : sizes) {
    // More ranks find nothing new in what is on top of another backend.
    if (size <= 4) all.push_back({Backend::kStaged, size});
    all.push_back({Backend::kNccl, size});
    // Ranks on hosts of equal sizes and not; on three hosts, and in no order.
    if (size == 3 || size == 4) all.push_back({Backend::kHierarchicalStaged, size});
    if (size == 3 || size == 8) all.push_back({Backend::kHierarchicalNccl, size});
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
