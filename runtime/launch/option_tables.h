// The options of rondarun, by subject. Each call builds the list anew: Options() keeps them.
#ifndef RONDA_RUNTIME_LAUNCH_OPTION_TABLES_H_
#define RONDA_RUNTIME_LAUNCH_OPTION_TABLES_H_

#include <vector>

#include "runtime/launch/option.h"

namespace ronda {

// The job and its hosts, output, and questions about rondarun itself: horovodrun's, mpirun's -x and Ronda's own.
std::vector<Option> JobOptions();

// Settings of the runtime, by horovodrun's names.
std::vector<Option> TunableOptions();

// Nodes that start their own ranks: torchrun's and Paddle's.
std::vector<Option> NodeOptions();

// Options of those launchers that change nothing here, or cannot be had.
std::vector<Option> ForeignOptions();

}  // namespace ronda

#endif  // RONDA_RUNTIME_LAUNCH_OPTION_TABLES_H_
