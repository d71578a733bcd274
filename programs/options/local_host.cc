// SPDX-License-Identifier: Apache-2.0

#include "programs/options/local_host.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <hwloc.h>
#include <ifaddrs.h>
#include <limits.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <memory>
#include <random>
#include <system_error>
#include <type_traits>
#include <utility>

#include "absl/status/status.h"
#include "runtime/base/unique_fd.h"

namespace ronda {
namespace {

std::string Numeric(const sockaddr* address) {
  char text[INET6_ADDRSTRLEN] = {};
  const void* bytes = nullptr;
  if (address->sa_family == AF_INET) bytes = &reinterpret_cast<const sockaddr_in*>(address)->sin_addr;
  if (address->sa_family == AF_INET6) bytes = &reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr;
  if (bytes == nullptr || inet_ntop(address->sa_family, bytes, text, sizeof(text)) == nullptr) return "";
  return text;
}

struct DestroyTopology {
  void operator()(hwloc_topology_t topology) const { hwloc_topology_destroy(topology); }
};
using TopologyPointer = std::unique_ptr<std::remove_pointer_t<hwloc_topology_t>, DestroyTopology>;

// Returns whether the system refuses to report the CPU affinity. In that case, this program must not use hwloc, which
// would query the system endlessly, with ever larger buffers.
bool IsAffinityRefused() {
  cpu_set_t cores;
  return sched_getaffinity(0, sizeof(cores), &cores) != 0 && errno != EINVAL;
}

TopologyPointer LoadTopology() {
  if (IsAffinityRefused()) return nullptr;
  hwloc_topology_t topology = nullptr;
  if (hwloc_topology_init(&topology) != 0) return nullptr;
  TopologyPointer owner(topology);
  hwloc_topology_set_flags(topology, HWLOC_TOPOLOGY_FLAG_RESTRICT_TO_CPUBINDING | HWLOC_TOPOLOGY_FLAG_IS_THISSYSTEM);
  return hwloc_topology_load(topology) == 0 ? std::move(owner) : nullptr;
}

Core ThreadsOf(hwloc_obj_t core) {
  Core threads;
  for (int cpu = hwloc_bitmap_first(core->cpuset); cpu >= 0; cpu = hwloc_bitmap_next(core->cpuset, cpu)) {
    threads.push_back(cpu);
  }
  return threads;
}

std::vector<Core> CoresWithin(hwloc_topology_t topology, hwloc_const_cpuset_t cpus) {
  std::vector<Core> cores;
  hwloc_obj_t core = nullptr;
  while ((core = hwloc_get_next_obj_inside_cpuset_by_type(topology, cpus, HWLOC_OBJ_CORE, core)) != nullptr) {
    cores.push_back(ThreadsOf(core));
  }
  return cores;
}

// Returns the first port in the range that the kernel uses for outgoing connections.
int FirstEphemeralPort() {
  int first = 0;
  std::ifstream("/proc/sys/net/ipv4/ip_local_port_range") >> first;
  return first;
}

struct BoundSocket {
  UniqueFd fd;
  int port = 0;  // 0: it is not bound
};

// Binds a socket to `port`, or to a port of the kernel's choice if `port` is 0.
BoundSocket Bind(int port) {
  UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  socklen_t size = sizeof(address);
  auto* const generic = reinterpret_cast<sockaddr*>(&address);
  if (bind(fd.get(), generic, size) != 0 || getsockname(fd.get(), generic, &size) != 0) return {};
  return {.fd = std::move(fd), .port = ntohs(address.sin_port)};
}

// Binds a socket, if possible to a port that the kernel never uses for outgoing connections.
BoundSocket BindOutsideConnections() {
  constexpr int kFirst = 10000, kAttempts = 100;
  const int last = FirstEphemeralPort() - 1;
  std::random_device random;
  for (int attempt = 0; last >= kFirst && attempt < kAttempts; ++attempt) {
    BoundSocket bound = Bind(std::uniform_int_distribution<int>(kFirst, last)(random));
    if (bound.port != 0) return bound;
  }
  return Bind(0);
}

}  // namespace

std::vector<std::string> OwnAddresses() {
  std::vector<std::string> addresses;
  char name[HOST_NAME_MAX + 1] = {};
  if (gethostname(name, sizeof(name) - 1) == 0) addresses.emplace_back(name);
  ifaddrs* interfaces = nullptr;
  if (getifaddrs(&interfaces) != 0) return addresses;
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(interfaces, freeifaddrs);
  for (const ifaddrs* interface = interfaces; interface != nullptr; interface = interface->ifa_next) {
    if (interface->ifa_addr == nullptr) continue;
    std::string address = Numeric(interface->ifa_addr);
    if (!address.empty()) addresses.push_back(std::move(address));
  }
  return addresses;
}

int CountCores() {
  cpu_set_t cores;
  if (sched_getaffinity(0, sizeof(cores), &cores) != 0) return 1;
  return CPU_COUNT(&cores);
}

// The driver creates one directory per GPU in /proc/driver/nvidia/gpus.
int CountGpus() {
  const std::unique_ptr<DIR, int (*)(DIR*)> directory(opendir("/proc/driver/nvidia/gpus"), closedir);
  if (directory == nullptr) return 0;
  int count = 0;
  while (const dirent* entry = readdir(directory.get())) {
    if (entry->d_name[0] != '.') ++count;
  }
  return count;
}

absl::StatusOr<HostCores> ThisHostsCores() {
  const TopologyPointer topology = LoadTopology();
  if (topology == nullptr)
    return absl::InternalError(
        "hwloc cannot tell the cores of this host (or sched_getaffinity is refused): give --binding none");
  HostCores host;
  hwloc_obj_t node = nullptr;
  while ((node = hwloc_get_next_obj_by_type(topology.get(), HWLOC_OBJ_NUMANODE, node)) != nullptr) {
    std::vector<Core> cores = CoresWithin(topology.get(), node->cpuset);
    if (!cores.empty()) host.nodes.push_back(std::move(cores));
  }
  return host;
}

std::vector<int> FindFreePorts(int count) {
  std::vector<int> ports;
  std::vector<BoundSocket> held;  // until all ports are found, so that they differ
  for (int i = 0; i < count; ++i) ports.push_back(held.emplace_back(BindOutsideConnections()).port);
  return ports;
}

std::string ProgramPath() {
  std::error_code error;
  const std::filesystem::path path = std::filesystem::read_symlink("/proc/self/exe", error);
  return error ? "rondarun" : path.string();
}

}  // namespace ronda
