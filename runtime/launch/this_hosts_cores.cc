#include "runtime/launch/this_hosts_cores.h"

#include <hwloc.h>

#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/status/status.h"

namespace ronda {
namespace {

struct DestroyTopology {
  void operator()(hwloc_topology_t topology) const { hwloc_topology_destroy(topology); }
};
using TopologyPointer = std::unique_ptr<std::remove_pointer_t<hwloc_topology_t>, DestroyTopology>;

TopologyPointer LoadTopology() {
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

}  // namespace

absl::StatusOr<HostCores> ThisHostsCores() {
  const TopologyPointer topology = LoadTopology();
  if (topology == nullptr) return absl::InternalError("hwloc cannot tell the cores of this host: give --binding none");
  HostCores host;
  hwloc_obj_t node = nullptr;
  while ((node = hwloc_get_next_obj_by_type(topology.get(), HWLOC_OBJ_NUMANODE, node)) != nullptr) {
    std::vector<Core> cores = CoresWithin(topology.get(), node->cpuset);
    if (!cores.empty()) host.nodes.push_back(std::move(cores));
  }
  return host;
}

}  // namespace ronda
