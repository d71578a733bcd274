// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_BENCH_HARNESS_COMMAND_H_
#define RONDA_BENCH_HARNESS_COMMAND_H_

#include <string>
#include <vector>

namespace ronda::bench {

// A subcommand of ronda-bench.
struct Command {
  const char* name;
  const char* summary;                                    // one line of ronda-bench --help
  int (*run)(const std::vector<std::string>& arguments);  // the words after the name; returns the exit code
};

// Return the subcommands. Each is defined in NAME_command.cc.
Command CollectivesCommand();  // operations x sizes x dtypes x wires, by layer, beside peers, every element checked
Command StepCommand();         // the communication of training steps
Command LatencyCommand();      // one small allreduce through the whole client, call by call; the cost of an idle job
Command NegotiationCommand();  // the cost of agreeing on a step, in CPU time, messages and bytes
Command ModelCommand();        // predicts steps on clusters; runs nothing
Command SubmissionCommand();   // the cost of submitting a step's gradients, call by call
Command StartupCommand();      // from the launcher's start to the first allreduce
Command ScaleCommand();        // start, step and death of jobs with far more ranks than cores
Command ElasticCommand();      // the time that a job takes to continue after a rank is killed
Command AdviseCommand();       // runs a program alone, and predicts its steps on many ranks
Command ReportCommand();       // a page with plots and tables of the other commands' results

}  // namespace ronda::bench

#endif  // RONDA_BENCH_HARNESS_COMMAND_H_
