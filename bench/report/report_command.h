#ifndef RONDA_BENCH_REPORT_REPORT_COMMAND_H_
#define RONDA_BENCH_REPORT_REPORT_COMMAND_H_

#include "bench/command.h"

namespace ronda::bench {

// ronda-bench report: a page with plots and tables of what other runs have measured.
Command ReportCommand();

}  // namespace ronda::bench

#endif  // RONDA_BENCH_REPORT_REPORT_COMMAND_H_
