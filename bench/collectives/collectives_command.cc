// SPDX-License-Identifier: Apache-2.0

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "bench/collectives/collective_case.h"
#include "bench/collectives/implementation.h"
#include "bench/collectives/measurement.h"
#include "bench/harness/arguments.h"
#include "bench/harness/command.h"
#include "bench/harness/job.h"
#include "client/ronda.hpp"
#include "runtime/base/status_macros.h"

namespace ronda::bench {
namespace {

struct CollectivesOptions {
  JobOptions job;
  CaseRanges ranges;
  std::vector<std::string> layers = {"communicator", "client"};
  std::vector<std::string> backends = {kShm};  // of the communicator layer
  InterleavingOptions interleaving;
  ConnectOptions communicator = {.suffix = "-communicator"};
  int factor = 4;
};

void AddCaseFlags(Flags* flags, CollectivesOptions* options) {
  CaseRanges& ranges = options->ranges;
  const CaseRanges all = CaseRanges::Everything({});
  flags->Add({.names = {"--op"}, .value = "LIST", .help = "Operations (allreduce), or all."},
             NamedList(&ranges.ops, all.ops));
  flags->Add({.names = {"-b", "--min-bytes"}, .value = "SIZE", .help = "Smallest message (8)."},
             Size(&ranges.min_bytes));
  flags->Add({.names = {"-e", "--max-bytes"}, .value = "SIZE", .help = "Largest message (256M)."},
             Size(&ranges.max_bytes));
  flags->Add({.names = {"-f", "--factor"}, .value = "N", .help = "From one size to the next (4)."},
             Integer(&options->factor, {.min = 2, .max = 1 << 20}));
  flags->Add({.names = {"--dtype"}, .value = "LIST", .help = "Element types (float32), or all."},
             NamedList(&ranges.dtypes, all.dtypes));
  flags->Add(
      {.names = {"--wire"}, .value = "LIST", .help = "Formats in which Ronda's reductions travel (none), or all."},
      NamedList(&ranges.wires, all.wires));
  flags->Add(
      {.names = {"--place"}, .value = "LIST", .help = "Allreduces in place, out of place, or both: in,out (in)."},
      NamedList(&ranges.placements, all.placements));
}

void AddMeasurementFlags(Flags* flags, CollectivesOptions* options) {
  flags->Add(
      {.names = {"--layer"},
       .value = "LIST",
       .help = "communicator: Ronda's alone. client: the whole path through the\nclient's API. Both by default."},
      ChoiceList(&options->layers, {"communicator", "client"}));
  AddBackendFlag(flags, "Backends of the communicator layer", &options->backends);
  flags->Add(
      {.names = {"--rounds"}, .value = "N", .help = "Blocks of each implementation, after one that warms up (9)."},
      Integer(&options->interleaving.rounds, {.min = 1, .max = 10000}));
  flags->Add({.names = {"--block-time"}, .value = "TIME", .help = "Length of a block, roughly (20ms)."},
             Duration(&options->interleaving.block_time));
  flags->Add({.names = {"-n", "--iters"},
              .value = "N",
              .help = "Iterations of a block (as many as last for --block-time).\nFor one block, as NCCL's tests have, "
                      "add --rounds 1."},
             Integer(&options->interleaving.iterations, {.min = 1, .max = 1000000}));
  flags->Add({.names = {"-w", "--warmup-iters"},
              .value = "N",
              .help = "Iterations of each implementation before its first block (those of a block)."},
             Integer(&options->interleaving.warm_up, {.min = 0, .max = 1000000}));
  flags->Add(
      {.names = {"--chunk-bytes"}, .value = "SIZE", .help = "Chunks of the communicator layer (its own choice)."},
      Size(&options->communicator.chunk_bytes));
  flags->Add({.names = {"--chunks"}, .value = "N", .help = "Chunks in a rank's ring there (its own choice)."},
             Integer(&options->communicator.chunks, {.min = 0, .max = 1024}));
}

constexpr char kDescription[] =
    "Times collective operations: layers of Ronda, and peers, interleaved in the same processes.\n"
    "\n"
    "  ronda-bench collectives -np 2 --peer mpi,gloo -b 4 -e 64M\n"
    "  ronda-bench collectives --op all --layer client --dtype float16,int64 --json results.json\n"
    "\n"
    "A time is the median of the rounds; a round's is that of its slowest rank. algbw is the\n"
    "message's bytes over the time; busbw the bandwidth of the busiest link, as NCCL's tests\n"
    "define it, and the last lines their mean. A peer's column says how many times as long the peer took. After the "
    "timing every\n"
    "element of a result is checked.";

// Connects this process to the communicator of a backend. Results of kInProcess are reported under that name; results
// of other backends, under the name of the communicator layer.
absl::StatusOr<LocalRanks> ConnectBackend(const std::string& backend, const ConnectOptions& options,
                                          const LaunchedRank& launched) {
  if (backend == kInProcess) {
    return LocalRanks(backend, launched.rank == 0 ? MakeInProcessRanks(launched.size)
                                                  : std::vector<std::unique_ptr<Implementation>>());
  }
  RONDA_ASSIGN_OR_RETURN(std::unique_ptr<Implementation> implementation, ConnectCommunicator(launched, options));
  return LocalRanks(std::move(implementation), launched.rank);
}

absl::StatusOr<std::vector<LocalRanks>> MakeImplementations(const CollectivesOptions& options, Rank& rank) {
  std::vector<LocalRanks> implementations;
  for (const std::string& layer : options.layers) {
    if (layer == "client") {
      implementations.emplace_back(MakeClient(), rank.launched.rank);
      continue;
    }
    for (const std::string& backend : options.backends) {
      RONDA_ASSIGN_OR_RETURN(LocalRanks ranks, ConnectBackend(backend, options.communicator, rank.launched));
      implementations.push_back(std::move(ranks));
    }
  }
  for (const std::unique_ptr<Peer>& peer : rank.peers) {
    implementations.emplace_back(MakePeer(peer.get(), &rank.group), rank.launched.rank);
  }
  return implementations;
}

size_t MostBytes(const std::vector<CollectiveCase>& cases) {
  size_t bytes = 0;
  for (const CollectiveCase& shape : cases) bytes = std::max(bytes, shape.bytes());
  return bytes;
}

// The memory in which all cases run. It must outlive the implementations, which keep the last case that they prepared.
struct CaseMemory {
  explicit CaseMemory(size_t bytes) : input(bytes), output(bytes) {}

  const AlignedBytes input;
  const AlignedBytes output;
};

// Runs the cases, one after the other. Thread-compatible.
class CollectivesRun {
 public:
  CollectivesRun(const InterleavingOptions& interleaving, const CaseMemory& memory,
                 std::vector<LocalRanks>* implementations, Rank* rank)
      : interleaving_(interleaving),
        memory_(memory),
        implementations_(*implementations),
        rank_(*rank),
        table_(CollectivesTable(PeerNames(rank->peers))) {}

  absl::Status Run(const std::vector<CollectiveCase>& cases) {
    rank_.output.Print(table_.Header());
    for (size_t i = 0; i < cases.size(); ++i) {
      rank_.output.Progress(static_cast<double>(i) / static_cast<double>(cases.size()), cases[i].label());
      const bool is_in_place = cases[i].placement == Placement::kInPlace;
      const AlignedBytes& output = is_in_place ? memory_.input : memory_.output;
      RONDA_RETURN_IF_ERROR(RunCase(cases[i], {memory_.input.data(), output.data()}));
    }
    rank_.output.Print(AverageBandwidths(rank_.results.rows()));
    return wrong_ == 0 ? absl::OkStatus()
                       : absl::InternalError(absl::StrCat(wrong_, " elements of results were wrong: see #wrong"));
  }

 private:
  static std::vector<std::string> PeerNames(const std::vector<std::unique_ptr<Peer>>& peers) {
    std::vector<std::string> names;
    for (const std::unique_ptr<Peer>& peer : peers) names.push_back(peer->info().name);
    return names;
  }

  absl::Status RunCase(const CollectiveCase& shape, const CaseBuffers& buffers) {
    RONDA_ASSIGN_OR_RETURN(const std::vector<LocalRanks*> prepared, Prepare(shape, buffers));
    for (LocalRanks* implementation : prepared) implementation->Clear();
    std::vector<Block> blocks;
    for (LocalRanks* implementation : prepared) {
      blocks.emplace_back([implementation](int iterations) { return implementation->Run(iterations); });
    }
    std::vector<Timing> timings = TimeInterleaved(blocks, interleaving_, &rank_.group);
    std::vector<CaseOutcome> outcomes;
    for (size_t i = 0; i < prepared.size(); ++i) {
      outcomes.push_back({.implementation = prepared[i]->name(),
                          .kind = prepared[i]->kind(),
                          .algorithm = prepared[i]->algorithm(),
                          .timing = std::move(timings[i]),
                          .wrong = rank_.group.Sum(prepared[i]->CountWrong())});
      wrong_ += outcomes.back().wrong;
    }
    for (ResultRow& row : RowsOf(shape, outcomes)) {
      rank_.output.Print(table_.RowOf(row));
      rank_.results.Add(std::move(row));
    }
    return absl::OkStatus();
  }

  // Prepares all implementations, and returns those that support the case.
  absl::StatusOr<std::vector<LocalRanks*>> Prepare(const CollectiveCase& shape, const CaseBuffers& buffers) {
    std::vector<LocalRanks*> prepared;
    for (LocalRanks& implementation : implementations_) {
      RONDA_ASSIGN_OR_RETURN(const bool is_able, implementation.Prepare(shape, buffers));
      if (is_able) prepared.push_back(&implementation);
    }
    return prepared;
  }

  const InterleavingOptions interleaving_;
  const CaseMemory& memory_;
  std::vector<LocalRanks>& implementations_;
  Rank& rank_;
  const Table table_;
  int64_t wrong_ = 0;
};

absl::Status RunOnRank(const CollectivesOptions& options, Rank& rank) {
  const bool has_client = std::find(options.layers.begin(), options.layers.end(), "client") != options.layers.end();
  if (has_client) ronda::init();
  {
    const std::vector<CollectiveCase> cases = MakeCases(options.ranges, rank.group.size());
    const CaseMemory memory(MostBytes(cases));
    RONDA_ASSIGN_OR_RETURN(std::vector<LocalRanks> implementations, MakeImplementations(options, rank));
    CollectivesRun run(options.interleaving, memory, &implementations, &rank);
    RONDA_RETURN_IF_ERROR(run.Run(cases));
  }
  if (has_client) ronda::shutdown();
  return absl::OkStatus();
}

int Run(const std::vector<std::string>& words) {
  CollectivesOptions options;
  Flags flags("collectives", kDescription);
  AddJobFlags(&flags, &options.job);
  AddCaseFlags(&flags, &options);
  AddMeasurementFlags(&flags, &options);
  int exit_code = 0;
  if (!ParseOrExplain(&flags, words, &exit_code)) return exit_code;
  options.ranges.factor = static_cast<size_t>(options.factor);
  options.job.backend = JobBackend(options.backends);
  if (options.ranges.max_bytes < options.ranges.min_bytes) {
    return Explain(
        absl::InvalidArgumentError(absl::StrCat("--max-bytes (-e) is less than --min-bytes (-b)\n", flags.Usage())));
  }
  if (MakeCases(options.ranges, options.job.ranks.front()).empty()) {
    return Explain(absl::InvalidArgumentError(
        absl::StrCat("there is nothing to measure: no element fits into --max-bytes (-e), or no --op has this --dtype, "
                     "--wire and --place\n",
                     flags.Usage())));
  }
  return RunJob({.command = "collectives", .words = words, .options = options.job},
                [&](Rank& rank) { return RunOnRank(options, rank); });
}

}  // namespace

Command CollectivesCommand() {
  return {
      .name = "collectives", .summary = "operations x sizes x dtypes, bandwidths, every element checked", .run = Run};
}

}  // namespace ronda::bench
