// In-place fp32 allreduce between the ranks of one host, in the same run: Ronda's shared-memory communicator alone,
// Ronda through the whole client path (submit, negotiate by the cache, reduce, wake the caller), and Open MPI.
//
//   mpirun -np 2 --oversubscribe bench/allreduce_bench [--min-bytes N] [--max-bytes N] [--rounds N] [--slot-kib N]
//   [--slots N]
//
// The three take turns in blocks of equally many iterations; a block's time is that of its slowest rank, and the table
// shows the median block. GB/s (algbw) is the buffer's bytes over the time; a ratio is Open MPI's time over Ronda's.
// Results are checked once a size, after the timing.
#include <mpi.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "bench/core_distance.h"
#include "client/ronda.hpp"
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

// Of MPI's ranks, which become Ronda's.
struct Place {
  int rank = 0;
  int size = 1;
  std::string job_id;
};

Place FindPlace() {
  Place place;
  MPI_Comm_rank(MPI_COMM_WORLD, &place.rank);
  MPI_Comm_size(MPI_COMM_WORLD, &place.size);
  int creator = getpid();
  MPI_Bcast(&creator, 1, MPI_INT, 0, MPI_COMM_WORLD);
  place.job_id = absl::StrCat("bench-", creator);
  return place;
}

// As rondarun would have set it.
void InitClient(const Place& place) {
  setenv("RONDA_JOB_ID", absl::StrCat(place.job_id, "-client").c_str(), 1);
  setenv("RONDA_RANK", absl::StrCat(place.rank).c_str(), 1);
  setenv("RONDA_SIZE", absl::StrCat(place.size).c_str(), 1);
  ronda::init();
}

Transport ConnectCommunicator(const BenchOptions& bench, const Place& place) {
  ShmWorld::Options options;
  options.rank = place.rank;
  options.size = place.size;
  options.job_id = place.job_id;
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

struct Free {
  void operator()(float* memory) const { std::free(memory); }
};
using AlignedFloats = std::unique_ptr<float[], Free>;

// Tensors begin at cache lines in the frameworks that allocate them.
AlignedFloats AllocateAligned(size_t bytes) {
  constexpr size_t kLineBytes = 64;
  return AlignedFloats(
      static_cast<float*>(std::aligned_alloc(kLineBytes, (bytes + kLineBytes - 1) / kLineBytes * kLineBytes)));
}

class AllreduceBench {
 public:
  AllreduceBench(const BenchOptions& options, Communicator& communicator)
      : options_(options), communicator_(communicator), data_(AllocateAligned(options.max_bytes)) {}

  void Run() {
    PrintCoreDistance("before");
    Print("#%11s %10s %6s %5s %27s %27s %20s\n", "", "", "", "", "ronda communicator", "ronda client", "Open MPI");
    Print("#%11s %10s %6s %5s %11s %8s %6s %11s %8s %6s %11s %8s %7s\n", "size", "count", "type", "redop", "us", "GB/s",
          "ratio", "us", "GB/s", "ratio", "us", "GB/s", "#wrong");
    for (size_t bytes = options_.min_bytes; bytes <= options_.max_bytes; bytes *= 4) Measure(bytes / sizeof(float));
    PrintCoreDistance("after");
  }

 private:
  template <typename... Args>
  void Print(const char* format, Args... args) const {
    if (communicator_.rank() == 0) std::printf(format, args...);
    std::fflush(stdout);
  }

  void PrintCoreDistance(const char* when) const {
    MPI_Barrier(MPI_COMM_WORLD);
    if (communicator_.rank() == 0)
      Print("# cache line between two cores, %s: %.0f ns\n", when, bench::CoreDistanceNanoseconds());
    MPI_Barrier(MPI_COMM_WORLD);
  }

  void RunCommunicator(size_t count) {
    const Segment segment = {.input = data_.get(), .output = data_.get(), .count = count};
    ExitIfError(communicator_.Reduce({.info = {.label = "bench"}, .segments = {&segment, 1}}));
  }

  void RunClient(size_t count) {
    ronda::allreduce(ronda::tensor("bench", data_.get(), {static_cast<int64_t>(count)}), {ronda::Op::Sum});
  }

  void RunMpi(size_t count) {
    MPI_Allreduce(MPI_IN_PLACE, data_.get(), static_cast<int>(count), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  }

  // Microseconds an iteration, on the slowest rank.
  template <typename Collective>
  double TimeBlock(size_t count, int iterations, const Collective& collective) {
    std::fill_n(data_.get(), count, 1.0f);
    MPI_Barrier(MPI_COMM_WORLD);
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < iterations; ++i) collective();
    const std::chrono::duration<double, std::micro> own = std::chrono::steady_clock::now() - start;
    double slowest = own.count();
    MPI_Allreduce(MPI_IN_PLACE, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return slowest / iterations;
  }

  template <typename Collective>
  long CountWrong(size_t count, const Collective& collective) {
    const int size = communicator_.size();
    for (size_t i = 0; i < count; ++i) data_[i] = static_cast<float>((communicator_.rank() + 1) * (i % 17));
    collective();
    long wrong = 0;
    for (size_t i = 0; i < count; ++i) wrong += data_[i] != static_cast<float>(size * (size + 1) / 2 * (i % 17));
    MPI_Allreduce(MPI_IN_PLACE, &wrong, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
    return wrong;
  }

  void Measure(size_t count) {
    const size_t bytes = count * sizeof(float);
    const int iterations = static_cast<int>(std::clamp<size_t>((size_t{128} << 20) / bytes, 2, 2000));
    const auto communicator = [&] { RunCommunicator(count); };
    const auto client = [&] { RunClient(count); };
    std::vector<double> communicator_us, client_us, mpi_us;
    for (int round = -1; round < options_.rounds; ++round) {
      const double times[] = {TimeBlock(count, iterations, communicator), TimeBlock(count, iterations, client),
                              TimeBlock(count, iterations, [&] { RunMpi(count); })};
      if (round < 0) continue;  // warm-up
      communicator_us.push_back(times[0]);
      client_us.push_back(times[1]);
      mpi_us.push_back(times[2]);
    }
    const double medians[] = {Median(communicator_us), Median(client_us), Median(mpi_us)};
    const double gigabytes_us = static_cast<double>(bytes) * 1e-3;
    Print("%12zu %10zu %6s %5s %11.2f %8.2f %6.2f %11.2f %8.2f %6.2f %11.2f %8.2f %7ld\n", bytes, count, "float", "sum",
          medians[0], gigabytes_us / medians[0], medians[2] / medians[0], medians[1], gigabytes_us / medians[1],
          medians[2] / medians[1], medians[2], gigabytes_us / medians[2],
          CountWrong(count, communicator) + CountWrong(count, client));
  }

  const BenchOptions options_;
  Communicator& communicator_;
  const AlignedFloats data_;
};

}  // namespace
}  // namespace ronda

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  const ronda::BenchOptions options = ronda::ParseFlags(argc, argv);
  {
    const ronda::Place place = ronda::FindPlace();
    ronda::InitClient(place);
    const ronda::Transport transport = ronda::ConnectCommunicator(options, place);
    ronda::AllreduceBench(options, *transport.communicator).Run();
    transport.control->Depart();
    ronda::shutdown();
  }
  MPI_Finalize();
  return 0;
}
