#ifndef RONDA_BENCH_STEP_STEP_COMMAND_H_
#define RONDA_BENCH_STEP_STEP_COMMAND_H_

#include "bench/command.h"

namespace ronda::bench {

// ronda-bench step: the communication of training steps.
Command StepCommand();

}  // namespace ronda::bench

#endif  // RONDA_BENCH_STEP_STEP_COMMAND_H_
