#ifndef RONDA_BENCH_BACKEND_H_
#define RONDA_BENCH_BACKEND_H_

#include <string>
#include <vector>

#include "bench/arguments.h"

namespace ronda::bench {

// Those of Ronda's backends that can be measured.
enum class Backend {
  kShm,        // ranks are processes; stands for what ronda::init() chooses where that is another
  kInProcess,  // ranks are threads of the first process; the others wait
  // Values of RONDA_BACKEND, which holds for a job as a whole: these have runs of their own.
  kMpi,
  kTcp,
  kHierarchical,
  kHierarchicalMpi,
  kHierarchicalTcp,
};

// As --backend takes them, in the order of the enumeration. The only list of them.
const std::vector<std::string>& BackendNames();

const std::string& Name(Backend backend);

// REQUIRES: `name` is one of BackendNames().
Backend BackendOf(const std::string& name);

// What all ranks of a job have to have as RONDA_BACKEND to measure these; "": what they have.
std::string JobBackend(const std::vector<Backend>& backends);

// --backend, into `backends`: a list of those that take turns, of which "all" stands for all, or one of the others.
// `purpose` begins the option's help: "Backends of the communicator layer".
void AddBackendFlag(Flags* flags, const std::string& purpose, std::vector<Backend>* backends);

}  // namespace ronda::bench

#endif  // RONDA_BENCH_BACKEND_H_
