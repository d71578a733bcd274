#ifndef RONDA_BENCH_NEGOTIATION_NEGOTIATION_COMMAND_H_
#define RONDA_BENCH_NEGOTIATION_NEGOTIATION_COMMAND_H_

#include "bench/command.h"

namespace ronda::bench {

// ronda-bench negotiation: what agreeing on a step costs, in CPU time, messages and bytes.
Command NegotiationCommand();

}  // namespace ronda::bench

#endif  // RONDA_BENCH_NEGOTIATION_NEGOTIATION_COMMAND_H_
