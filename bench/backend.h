#ifndef RONDA_BENCH_BACKEND_H_
#define RONDA_BENCH_BACKEND_H_

#include <string>
#include <vector>

namespace ronda::bench {

// Those of Ronda's backends that can be measured.
enum class Backend {
  kShm,       // ranks are processes
  kInProcess  // ranks are threads of the first process; the others wait
};

// As --backend takes them, in the order of the enumeration. The only list of them.
const std::vector<std::string>& BackendNames();

const std::string& Name(Backend backend);

// REQUIRES: `name` is one of BackendNames().
Backend BackendOf(const std::string& name);

}  // namespace ronda::bench

#endif  // RONDA_BENCH_BACKEND_H_
