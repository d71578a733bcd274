#ifndef RONDA_BENCH_COLLECTIVES_COLLECTIVES_COMMAND_H_
#define RONDA_BENCH_COLLECTIVES_COLLECTIVES_COMMAND_H_

#include "bench/command.h"

namespace ronda::bench {

// ronda-bench collectives: operations x sizes x dtypes x wires, by layer, beside peers, every element checked.
Command CollectivesCommand();

}  // namespace ronda::bench

#endif  // RONDA_BENCH_COLLECTIVES_COLLECTIVES_COMMAND_H_
