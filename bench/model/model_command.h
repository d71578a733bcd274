#ifndef RONDA_BENCH_MODEL_MODEL_COMMAND_H_
#define RONDA_BENCH_MODEL_MODEL_COMMAND_H_

#include "bench/command.h"

namespace ronda::bench {

// ronda-bench model: predicts steps on clusters that are not there. Runs nothing.
Command ModelCommand();

}  // namespace ronda::bench

#endif  // RONDA_BENCH_MODEL_MODEL_COMMAND_H_
