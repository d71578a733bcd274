// In-place fp32 allreduce between the ranks of one host: Ronda over shared memory against Open MPI, in the same run.
//
//   mpirun -np 2 --oversubscribe bench/allreduce_bench [--min-bytes N] [--max-bytes N] [--rounds N] [--slot-kib N]
//   [--slots N]
//
// The two alternate in blocks of equally many iterations; a block's time is that of its slowest rank, and the table
// shows the median block. algbw is the buffer's bytes over the time. Results are checked once a size, after the timing.
#include <mpi/mpi.h>  // Debian keeps the headers of its default MPI in this folder
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "runtime/collectives/shm/shm_transport.h"

namespace ronda {
namespace {

struct BenchOptions {
  size_t min_bytes = 4;
  size_t max_bytes = size_t{256} << 20;
  int rounds = 9;
  size_t slot_kib = 0;  // 0: the runtime's default
  int slots = 0;        // 0: the runtime's default
};

// Reads "--name value" pairs; exits on anything else.
BenchOptions ParseFlags(int argc, char** argv) {
  BenchOptions options;
  for (int i = 1; i < argc; i += 2) {
    const absl::string_view name = argv[i];
    uint64_t value = 0;
    if (i + 1 >= argc || !absl::SimpleAtoi(argv[i + 1], &value)) {
      std::fprintf(stderr, "%s: a number must follow\n", argv[i]);
      std::exit(2);
    }
    if (name == "--min-bytes") {
      options.min_bytes = std::max<uint64_t>(sizeof(float), value);
    } else if (name == "--max-bytes") {
      options.max_bytes = value;
    } else if (name == "--rounds") {
      options.rounds = static_cast<int>(std::max<uint64_t>(1, value));
    } else if (name == "--slot-kib") {
      options.slot_kib = value;
    } else if (name == "--slots") {
      options.slots = static_cast<int>(value);
    } else {
      std::fprintf(stderr, "%s is no option\n", argv[i]);
      std::exit(2);
    }
  }
  return options;
}

void ExitIfError(const absl::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "allreduce_bench: %s\n", status.ToString().c_str());
  MPI_Abort(MPI_COMM_WORLD, 1);
}

Transport ConnectThroughMpi(const BenchOptions& bench) {
  ShmWorld::Options options;
  MPI_Comm_rank(MPI_COMM_WORLD, &options.rank);
  MPI_Comm_size(MPI_COMM_WORLD, &options.size);
  int creator = getpid();
  MPI_Bcast(&creator, 1, MPI_INT, 0, MPI_COMM_WORLD);
  options.job_id = absl::StrCat("bench-", creator);
  if (bench.slot_kib > 0) options.slot_bytes = bench.slot_kib << 10;
  if (bench.slots > 0) options.slot_count = bench.slots;
  absl::StatusOr<Transport> transport = ConnectShmTransport(options);
  ExitIfError(transport.status());
  return *std::move(transport);
}

double Median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

class AllreduceBench {
 public:
  AllreduceBench(const BenchOptions& options, Communicator& communicator)
      : options_(options), communicator_(communicator), data_(options.max_bytes / sizeof(float)) {}

  void Run() {
    Print("#%13s %12s %6s %5s  %11s %9s  %11s %9s  %6s %7s\n", "size", "count", "type", "redop", "ronda us", "GB/s",
          "mpi us", "GB/s", "ratio", "#wrong");
    for (size_t bytes = options_.min_bytes; bytes <= options_.max_bytes; bytes *= 4) Measure(bytes / sizeof(float));
  }

 private:
  template <typename... Args>
  void Print(const char* format, Args... args) const {
    if (communicator_.rank() == 0) std::printf(format, args...);
    std::fflush(stdout);
  }

  void RunRonda(size_t count) {
    const Segment segment = {.input = data_.data(), .output = data_.data(), .count = count};
    ExitIfError(communicator_.Allreduce({.label = "bench", .segments = {&segment, 1}}));
  }

  void RunMpi(size_t count) {
    MPI_Allreduce(MPI_IN_PLACE, data_.data(), static_cast<int>(count), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  }

  // Microseconds an iteration, on the slowest rank.
  template <typename Collective>
  double TimeBlock(size_t count, int iterations, const Collective& collective) {
    std::fill_n(data_.begin(), count, 1.0f);
    MPI_Barrier(MPI_COMM_WORLD);
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < iterations; ++i) collective();
    const std::chrono::duration<double, std::micro> own = std::chrono::steady_clock::now() - start;
    double slowest = own.count();
    MPI_Allreduce(MPI_IN_PLACE, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return slowest / iterations;
  }

  long CountWrong(size_t count) {
    const int size = communicator_.size();
    for (size_t i = 0; i < count; ++i) data_[i] = static_cast<float>((communicator_.rank() + 1) * (i % 17));
    RunRonda(count);
    long wrong = 0;
    for (size_t i = 0; i < count; ++i) wrong += data_[i] != static_cast<float>(size * (size + 1) / 2 * (i % 17));
    MPI_Allreduce(MPI_IN_PLACE, &wrong, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
    return wrong;
  }

  void Measure(size_t count) {
    const size_t bytes = count * sizeof(float);
    const int iterations = static_cast<int>(std::clamp<size_t>((size_t{128} << 20) / bytes, 2, 4000));
    std::vector<double> ronda;
    std::vector<double> mpi;
    for (int round = -1; round < options_.rounds; ++round) {
      const double ronda_us = TimeBlock(count, iterations, [&] { RunRonda(count); });
      const double mpi_us = TimeBlock(count, iterations, [&] { RunMpi(count); });
      if (round < 0) continue;  // warm-up
      ronda.push_back(ronda_us);
      mpi.push_back(mpi_us);
    }
    const double ronda_us = Median(ronda);
    const double mpi_us = Median(mpi);
    const double gigabytes_us = static_cast<double>(bytes) * 1e-3;
    Print("%14zu %12zu %6s %5s  %11.2f %9.2f  %11.2f %9.2f  %6.2f %7ld\n", bytes, count, "float", "sum", ronda_us,
          gigabytes_us / ronda_us, mpi_us, gigabytes_us / mpi_us, mpi_us / ronda_us, CountWrong(count));
  }

  const BenchOptions options_;
  Communicator& communicator_;
  std::vector<float> data_;
};

}  // namespace
}  // namespace ronda

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  const ronda::BenchOptions options = ronda::ParseFlags(argc, argv);
  {
    const ronda::Transport transport = ronda::ConnectThroughMpi(options);
    ronda::AllreduceBench(options, *transport.communicator).Run();
    transport.control->Depart();
  }
  MPI_Finalize();
  return 0;
}
