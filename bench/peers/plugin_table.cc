#include "bench/peers/peer.h"
#include "bench/peers/plugin.h"

namespace ronda::bench::plugin {
namespace {

constexpr ronda_bench_peer kTable = {.version = RONDA_BENCH_PEER_VERSION,
                                     .init = Init,
                                     .description = Description,
                                     .algorithm_count = AlgorithmCount,
                                     .algorithm_name = AlgorithmName,
                                     .prepare = Prepare,
                                     .run = Run,
                                     .release = Release,
                                     .finalize = Finalize,
                                     .last_error = LastError};

}  // namespace
}  // namespace ronda::bench::plugin

extern "C" __attribute__((visibility("default"))) const ronda_bench_peer* ronda_bench_peer_functions() {
  return &ronda::bench::plugin::kTable;
}
