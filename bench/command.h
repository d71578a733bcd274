#ifndef RONDA_BENCH_COMMAND_H_
#define RONDA_BENCH_COMMAND_H_

#include <string>
#include <vector>

namespace ronda::bench {

// A subcommand of ronda-bench. Each has a header bench/NAME_command.h with a function that returns it, and a line in
// ronda_bench.cc.
struct Command {
  const char* name;
  const char* summary;                                    // one line of ronda-bench --help
  int (*run)(const std::vector<std::string>& arguments);  // the words behind the name; returns the exit code
};

}  // namespace ronda::bench

#endif  // RONDA_BENCH_COMMAND_H_
