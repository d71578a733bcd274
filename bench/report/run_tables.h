#ifndef RONDA_BENCH_REPORT_RUN_TABLES_H_
#define RONDA_BENCH_REPORT_RUN_TABLES_H_

#include <string>
#include <vector>

#include "bench/report/run_document.h"

namespace ronda::bench {

// A table of a report: how it is written is another matter.
struct ReportTable {
  std::string title;
  std::vector<std::string> header;
  std::vector<std::vector<std::string>> rows;  // as many cells as the header
};

// The runs themselves: file, command, date, machine, distance of the cores.
ReportTable TableOfRuns(const std::vector<RunDocument>& runs);

// The results of one run, in the form that suits its command; a command that is not known has none.
std::vector<ReportTable> TablesOf(const RunDocument& run);

}  // namespace ronda::bench

#endif  // RONDA_BENCH_REPORT_RUN_TABLES_H_
