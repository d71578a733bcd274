// SPDX-License-Identifier: Apache-2.0

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <iterator>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "bench/harness/arguments.h"
#include "bench/harness/command.h"
#include "bench/harness/job.h"
#include "bench/harness/launch.h"
#include "bench/harness/machine.h"
#include "bench/harness/results.h"
#include "bench/harness/statistics.h"
#include "bench/harness/temporary_folder.h"
#include "client/ronda.hpp"
#include "runtime/base/files.h"
#include "runtime/base/status_macros.h"
#include "runtime/base/unique_fd.h"

namespace ronda::bench {
namespace {

constexpr char kProcesses[] = "processes";
constexpr char kThreads[] = "threads";
constexpr char kOutput[] = "output";  // a file of the launcher and the ranks

struct ScaleOptions {
  std::vector<int> ranks = {2, 16, 64};
  std::vector<std::string> kinds = {kThreads, kProcesses};
  Results::Files files;
};

constexpr char kDescription[] =
    "What a job of many ranks on this machine costs, with far more ranks than cores:\n"
    "  start       from the start of the program until the last rank has joined\n"
    "  negotiated  an allreduce of a few bytes whose name is new, median on the slowest rank\n"
    "  locked      the same in a locked schedule\n"
    "  known       from the death of the last rank until the slowest of the others knows it\n"
    "  ended       from that death until the launcher has ended\n"
    "  CPU ms      of all cores, for the whole job with its launcher, divided by the ranks: other programs on the\n"
    "              machine change it less than the times above\n"
    "  MiB         memory of one rank's own, without memory that ranks share\n"
    "  descriptors the most open files of one rank\n"
    "Ranks are processes that rondarun starts, or threads of one process. Their output goes to a file. The command\n"
    "names the file if a job fails for any other reason than that death.\n"
    "\n"
    "  ronda-bench scale -np 16,64\n";

// The first argument of this program if it is a rank, or a process whose threads are ranks. It is internal, and not for
// users. The second argument is the path of the RecordFile. With threads, the third argument is the number of ranks.
constexpr char kAsRank[] = "--as-rank";
constexpr char kAsThreads[] = "--as-threads";

// A rank's measurements. Times are on the machine-wide clock. A time is zero if the rank died before that point.
struct Record {
  double joined_s = 0;
  double negotiated_s = 0;  // duration
  double locked_s = 0;      // duration
  double noticed_s = 0;     // on the rank that dies: the time of its death
  int64_t scheduled = 0;    // buckets that were carried out by a locked schedule
  int64_t own_kib = 0;
  int64_t descriptors = 0;
};

// A file with the records of all ranks: a rank that is killed cannot send its record.
class RecordFile {
 public:
  static absl::StatusOr<RecordFile> Open(const std::string& path, int flags) {
    RecordFile file;
    file.fd_.Reset(open(path.c_str(), flags | O_CLOEXEC, S_IRUSR | S_IWUSR));
    if (!file.fd_.valid()) return absl::ErrnoToStatus(errno, absl::StrCat("cannot open ", path));
    return file;
  }

  void Write(int rank, const Record& record) const {
    [[maybe_unused]] const ssize_t written = pwrite(fd_.get(), &record, sizeof(record), OffsetOf(rank));
  }
  Record Read(int rank) const {
    Record record;
    [[maybe_unused]] const ssize_t read = pread(fd_.get(), &record, sizeof(record), OffsetOf(rank));
    return record;
  }

 private:
  static off_t OffsetOf(int rank) { return static_cast<off_t>(sizeof(Record)) * rank; }

  UniqueFd fd_;
};

// Returns the CPU time of all child processes that have ended, including their own children.
double ChildrensCpuSeconds() {
  rusage usage = {};
  getrusage(RUSAGE_CHILDREN, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

// Returns the number on the line `name` of /proc/self/status, such as "RssAnon: 1234 kB".
int64_t OwnStatus(absl::string_view name) {
  const std::string status = ReadFile("/proc/self/status").value_or("");
  for (const absl::string_view line : absl::StrSplit(status, '\n')) {
    const std::vector<absl::string_view> words = absl::StrSplit(line, absl::ByAnyChar(": \t"), absl::SkipEmpty());
    int64_t number = 0;
    if (words.size() > 1 && words[0] == name && absl::SimpleAtoi(words[1], &number)) return number;
  }
  return 0;
}

int64_t OwnDescriptors() {
  std::error_code error;
  const std::filesystem::directory_iterator all("/proc/self/fd", error);
  return std::distance(begin(all), end(all));
}

// Runs the benchmark on a rank that has joined its job.
class ScaleRank {
 public:
  enum class Kind { kProcess, kThread };

  ScaleRank(const RecordFile* file, Kind kind) : file_(*file), kind_(kind) {}

  // Runs all measurements. Does not return on the last rank, which kills itself or, if the ranks are threads, throws an
  // exception.
  void Run() {
    record_.joined_s = NowSeconds();
    record_.negotiated_s = MedianOf(kNewNames, [&](int i) { Sum(absl::StrCat("new", i)); });
    for (int i = 0; i < kStepsBeforeLock; ++i) Sum("step");
    record_.locked_s = MedianOf(kLockedSteps, [&](int) { Sum("step"); });
    record_.scheduled = static_cast<int64_t>(ronda::statistics().buckets_scheduled);
    MeasureMemory();
    ronda::barrier();
    ronda::rank() == ronda::size() - 1 ? Die() : AwaitDeath();
  }

 private:
  static constexpr int kNewNames = 5;
  static constexpr int kStepsBeforeLock = 20;
  static constexpr int kLockedSteps = 10;

  template <typename Step>
  static double MedianOf(int steps, const Step& step) {
    std::vector<double> seconds;
    for (int i = 0; i < steps; ++i) {
      const double begin = NowSeconds();
      step(i);
      seconds.push_back(NowSeconds() - begin);
    }
    return Median(seconds);
  }

  static void Sum(const std::string& name) {
    float value = 1;
    ronda::allreduce(ronda::tensor(name, &value), {ronda::Op::Sum});
    if (value != static_cast<float>(ronda::size())) throw std::logic_error("the sum is wrong");
  }

  // If the ranks are threads, each gets an equal share of the process's memory.
  void MeasureMemory() {
    const int ranks_here = kind_ == Kind::kThread ? ronda::size() : 1;
    record_.own_kib = OwnStatus("RssAnon") / ranks_here;
    record_.descriptors = OwnDescriptors() / ranks_here;
  }

  void Die() {
    record_.noticed_s = NowSeconds();
    file_.Write(ronda::rank(), record_);
    if (kind_ == Kind::kProcess) raise(SIGKILL);
    throw std::runtime_error("this rank leaves");
  }

  void AwaitDeath() {
    const int rank = ronda::rank();
    float value = 1;
    while (ronda::try_allreduce(ronda::tensor("step", &value)).ok()) continue;
    record_.noticed_s = NowSeconds();
    file_.Write(rank, record_);
  }

  const RecordFile& file_;
  const Kind kind_;
  Record record_;
};

int RunAsRank(const RecordFile& file) {
  std::signal(SIGTERM, SIG_IGN);  // from rondarun, a second after the death: the ranks end by themselves
  const ronda::Job job;
  ScaleRank(&file, ScaleRank::Kind::kProcess).Run();
  return 0;
}

int RunAsThreads(const RecordFile& file, int ranks) {
  try {
    ronda::run_threads(ranks, [&] { ScaleRank(&file, ScaleRank::Kind::kThread).Run(); });
  } catch (const std::exception&) {  // of the rank that has left
  }
  return 0;
}

// If `words` starts with kAsRank or kAsThreads, runs the ranks of this process and returns the exit code. Otherwise
// returns nullopt.
std::optional<int> RunAsRanks(const std::vector<std::string>& words) {
  const bool is_rank = words.size() == 2 && words[0] == kAsRank;
  int threads = 0;
  const bool are_threads = words.size() == 3 && words[0] == kAsThreads && absl::SimpleAtoi(words[2], &threads);
  if (!is_rank && !are_threads) return std::nullopt;
  const absl::StatusOr<RecordFile> file = RecordFile::Open(words[1], O_RDWR);
  if (!file.ok()) return Explain(file.status());
  return is_rank ? RunAsRank(*file) : RunAsThreads(*file, threads);
}

// Returns the exit code of a job that goes as planned. rondarun's exit code shows that SIGKILL killed a rank. If the
// ranks are threads, the process outlives the thread that ends, and exits with 0.
int PlannedExitCode(const std::string& kind) { return kind == kThreads ? 0 : 128 + SIGKILL; }

absl::StatusOr<LaunchCommand> PlanScale(const std::string& kind, int ranks, const std::string& path) {
  if (kind == kThreads) return LaunchCommand{.words = {OwnProgram(), "scale", kAsThreads, path, absl::StrCat(ranks)}};
  return PlanLaunch({.launcher = Launcher::kRondarun,
                     .ranks = ranks,
                     .command = {OwnProgram(), "scale", kAsRank, path},
                     .options = {"--start-timeout", "300", "--grace-period", "300"}},
                    FindInstalledProgram());
}

// Returns the maximum of a field over `records`.
template <typename Number>
Number MostOf(const std::vector<Record>& records, Number Record::*field) {
  Number most = 0;
  for (const Record& record : records) most = std::max(most, record.*field);
  return most;
}

// The results of a finished job.
struct EndedJob {
  std::string kind;
  std::vector<Record> records;
  int exit_code = 0;
  double begin = 0;
  double end = 0;
  double cpu_s = 0;
};

// Returns what did not go as planned in the job, or "" if everything did.
std::string Deviation(const EndedJob& job) {
  for (size_t rank = 0; rank < job.records.size(); ++rank) {
    if (job.records[rank].noticed_s == 0) return absl::StrCat("rank ", rank, " has not come to the end");
    if (job.records[rank].scheduled == 0) return absl::StrCat("rank ", rank, " has locked no schedule");
  }
  return job.exit_code == PlannedExitCode(job.kind) ? "" : absl::StrCat("the exit code is ", job.exit_code);
}

ResultRow RowOf(const EndedJob& job) {
  const double death = job.records.back().noticed_s;
  const auto ranks = static_cast<int64_t>(job.records.size());
  return {{"kind", job.kind},
          {"ranks", ranks},
          {"start_s", MostOf(job.records, &Record::joined_s) - job.begin},
          {"negotiated_ms", 1e3 * MostOf(job.records, &Record::negotiated_s)},
          {"locked_ms", 1e3 * MostOf(job.records, &Record::locked_s)},
          {"known_s", MostOf(job.records, &Record::noticed_s) - death},
          {"ended_s", job.end - death},
          {"own_mib", static_cast<double>(MostOf(job.records, &Record::own_kib)) / 1024},
          {"descriptors", MostOf(job.records, &Record::descriptors)},
          {"cpu_ms", 1e3 * job.cpu_s / static_cast<double>(ranks)}};
}

// Runs a job that keeps its files in `folder`.
absl::StatusOr<EndedJob> RunJob(const std::string& kind, int ranks, const TemporaryFolder& folder) {
  const std::string path = folder.PathOf("records");
  RONDA_ASSIGN_OR_RETURN(const RecordFile file, RecordFile::Open(path, O_RDWR | O_CREAT | O_TRUNC));
  RONDA_ASSIGN_OR_RETURN(LaunchCommand command, PlanScale(kind, ranks, path));
  command.output_file = folder.PathOf(kOutput);
  EndedJob job = {.kind = kind};
  const double cpu_before = ChildrensCpuSeconds();
  job.begin = NowSeconds();
  RONDA_ASSIGN_OR_RETURN(job.exit_code, RunLaunch(command, [](const OutputMessage&) {}));
  job.end = NowSeconds();
  job.cpu_s = ChildrensCpuSeconds() - cpu_before;
  for (int rank = 0; rank < ranks; ++rank) job.records.push_back(file.Read(rank));
  return job;
}

absl::StatusOr<ResultRow> MeasureJob(const std::string& kind, int ranks) {
  RONDA_ASSIGN_OR_RETURN(const std::unique_ptr<TemporaryFolder> folder, TemporaryFolder::Create());
  RONDA_ASSIGN_OR_RETURN(const EndedJob job, RunJob(kind, ranks, *folder));
  const std::string deviation = Deviation(job);
  if (deviation.empty()) return RowOf(job);
  folder->Keep();
  const std::string output = folder->PathOf(kOutput);
  return absl::InternalError(absl::StrCat(ranks, " ranks as ", kind, ": ", deviation, "; the end of their output in ",
                                          output, ":\n", LastLines(output)));
}

absl::Status Measure(const ScaleOptions& options, Results* results) {
  const Table table({{.title = "ranks as", .width = 10, .align = Table::Column::Align::kLeft, .field = "kind"},
                     {.title = "ranks", .field = "ranks"},
                     {.title = "start s", .width = 8, .field = "start_s"},
                     {.title = "negotiated", .width = 10, .group = "ms", .field = "negotiated_ms", .digits = 3},
                     {.title = "locked", .width = 8, .group = "ms", .field = "locked_ms", .digits = 3},
                     {.title = "known", .width = 8, .group = "s after a death", .field = "known_s", .digits = 3},
                     {.title = "ended", .width = 8, .group = "s after a death", .field = "ended_s"},
                     {.title = "CPU ms", .width = 8, .group = "a rank", .field = "cpu_ms", .digits = 1},
                     {.title = "MiB", .width = 6, .group = "a rank", .field = "own_mib"},
                     {.title = "descriptors", .group = "a rank", .field = "descriptors"}});
  std::fputs(table.Header().c_str(), stdout);
  for (const std::string& kind : options.kinds) {
    for (const int ranks : options.ranks) {
      RONDA_ASSIGN_OR_RETURN(const ResultRow row, MeasureJob(kind, ranks));
      std::fputs(table.RowOf(row).c_str(), stdout);
      std::fflush(stdout);
      results->Add(row);
    }
  }
  return results->Write(options.files);
}

int Run(const std::vector<std::string>& words) {
  if (const std::optional<int> exit_code = RunAsRanks(words)) return *exit_code;
  ScaleOptions options;
  Flags flags("scale", kDescription);
  flags.Add({.names = {"-np", "--ranks"}, .value = "LIST", .help = "Sizes of the jobs (2,16,64)."},
            IntegerList(&options.ranks, {.min = 2, .max = 1024}));
  flags.Add({.names = {"--as"}, .value = "LIST", .help = "threads, processes (both)."},
            ChoiceList(&options.kinds, {kThreads, kProcesses}));
  AddFileFlags(&flags, &options.files);
  int exit_code = 0;
  if (!ParseOrExplain(&flags, words, &exit_code)) return exit_code;
  Results results("scale", words);
  const absl::Status status = Measure(options, &results);
  return status.ok() ? 0 : Explain(status);
}

}  // namespace

Command ScaleCommand() {
  return {.name = "scale", .summary = "start, step and death of jobs with far more ranks than cores", .run = Run};
}

}  // namespace ronda::bench
