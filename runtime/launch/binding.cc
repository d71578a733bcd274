#include "runtime/launch/binding.h"

#include <cstddef>

namespace ronda {
namespace {

std::vector<int> CpusOf(const std::vector<Core>& cores) {
  std::vector<int> cpus;
  for (const Core& core : cores) cpus.insert(cpus.end(), core.begin(), core.end());
  return cpus;
}

std::vector<Core> CoresOf(const HostCores& host) {
  std::vector<Core> cores;
  for (const auto& node : host.nodes) cores.insert(cores.end(), node.begin(), node.end());
  return cores;
}

}  // namespace

std::vector<int> CpusOfRank(const HostCores& cores, LaunchOptions::Binding binding, int local_rank, int local_size) {
  if (cores.nodes.empty() || binding == LaunchOptions::Binding::kNone) return {};
  const auto rank = static_cast<size_t>(local_rank);
  if (binding == LaunchOptions::Binding::kNuma) {
    return CpusOf(cores.nodes[rank * cores.nodes.size() / static_cast<size_t>(local_size)]);
  }
  const std::vector<Core> all = CoresOf(cores);
  return all[rank % all.size()];
}

}  // namespace ronda
