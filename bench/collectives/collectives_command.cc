#include "bench/collectives/collectives_command.h"

#include <algorithm>
#include <cstdio>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "bench/arguments.h"
#include "bench/backend.h"
#include "bench/collectives/collective_case.h"
#include "bench/collectives/collectives_report.h"
#include "bench/collectives/contestant.h"
#include "bench/collectives/elements.h"
#include "bench/collectives/ensemble.h"
#include "bench/job.h"
#include "bench/turns.h"
#include "client/ronda.hpp"
#include "runtime/base/status_macros.h"

namespace ronda::bench {
namespace {

constexpr int kUsageError = 2;

struct CollectivesOptions {
  JobOptions job;
  CaseRanges ranges;
  std::vector<std::string> layers = {"communicator", "client"};
  std::vector<Backend> backends = {Backend::kShm};  // of the communicator layer
  TurnOptions turns;
  ConnectOptions communicator = {.suffix = "-communicator"};
  int factor = 4;
};

void AddCaseFlags(Flags* flags, CollectivesOptions* options) {
  CaseRanges& ranges = options->ranges;
  flags->Add({.names = {"--op"}, .value = "LIST", .help = "Operations (allreduce), or all."},
             ChoiceList(&ranges.ops, OpNames()));
  flags->Add({.names = {"-b", "--min-bytes"}, .value = "SIZE", .help = "Smallest message (8)."},
             Size(&ranges.min_bytes));
  flags->Add({.names = {"-e", "--max-bytes"}, .value = "SIZE", .help = "Largest message (256M)."},
             Size(&ranges.max_bytes));
  flags->Add({.names = {"-f", "--factor"}, .value = "N", .help = "From one size to the next (4)."},
             Integer(&options->factor, {.min = 2, .max = 1 << 20}));
  flags->Add({.names = {"--dtype"}, .value = "LIST", .help = "Element types (float32), or all."},
             ChoiceList(&ranges.dtypes, DTypeNames()));
  flags->Add(
      {.names = {"--wire"}, .value = "LIST", .help = "Formats in which Ronda's reductions travel (none), or all."},
      ChoiceList(&ranges.wires, WireNames()));
  flags->Add(
      {.names = {"--place"}, .value = "LIST", .help = "Allreduces in place, out of place, or both: in,out (in)."},
      ChoiceList(&ranges.placements, PlacementNames()));
}

void AddMeasurementFlags(Flags* flags, CollectivesOptions* options) {
  flags->Add({.names = {"--layer"},
              .value = "LIST",
              .help = "communicator: Ronda's alone. client: the whole way through the\nclient's API. Both by default."},
             ChoiceList(&options->layers, {"communicator", "client"}));
  AddBackendFlag(flags, "Backends of the communicator layer", &options->backends);
  flags->Add({.names = {"--rounds"}, .value = "N", .help = "Blocks of each contestant, after one that warms up (9)."},
             Integer(&options->turns.rounds, {.min = 1, .max = 10000}));
  flags->Add({.names = {"--block-time"}, .value = "TIME", .help = "How long a block lasts, roughly (20ms)."},
             Duration(&options->turns.block_time));
  flags->Add(
      {.names = {"--chunk-bytes"}, .value = "SIZE", .help = "Chunks of the communicator layer (its own choice)."},
      Size(&options->communicator.chunk_bytes));
  flags->Add({.names = {"--chunks"}, .value = "N", .help = "Chunks in a rank's ring there (its own choice)."},
             Integer(&options->communicator.chunks, {.min = 0, .max = 1024}));
}

constexpr char kDescription[] =
    "Times collective operations: layers of Ronda, and peers, in turns in the same processes.\n"
    "\n"
    "  ronda-bench collectives -np 2 --peer mpi,gloo -b 4 -e 64M\n"
    "  ronda-bench collectives --op all --layer client --dtype float16,int64 --json results.json\n"
    "\n"
    "A time is the median of the rounds; a round's is that of its slowest rank. algbw is the\n"
    "message's bytes over the time; busbw what the busiest link saw, as NCCL's performance tests\n"
    "define it. A peer's column says how many times as long the peer took. After the timing every\n"
    "element of a result is checked.";

// The communicator of a backend; one of processes goes by the name of its layer.
absl::StatusOr<Ensemble> ConnectBackend(Backend backend, const ConnectOptions& options, const Place& place) {
  if (backend == Backend::kInProcess) {
    return Ensemble(Name(backend), place.rank == 0 ? MakeInProcessContestants(place.size)
                                                   : std::vector<std::unique_ptr<Contestant>>());
  }
  RONDA_ASSIGN_OR_RETURN(std::unique_ptr<Contestant> contestant, ConnectCommunicatorContestant(place, options));
  return Ensemble(std::move(contestant), place.rank);
}

absl::StatusOr<std::vector<Ensemble>> MakeContestants(const CollectivesOptions& options, Rank& rank) {
  std::vector<Ensemble> contestants;
  for (const std::string& layer : options.layers) {
    if (layer == "client") {
      contestants.emplace_back(MakeClientContestant(), rank.place.rank);
      continue;
    }
    for (const Backend backend : options.backends) {
      RONDA_ASSIGN_OR_RETURN(Ensemble ensemble, ConnectBackend(backend, options.communicator, rank.place));
      contestants.push_back(std::move(ensemble));
    }
  }
  for (const std::unique_ptr<Peer>& peer : rank.peers) {
    contestants.emplace_back(MakePeerContestant(peer.get(), &rank.team), rank.place.rank);
  }
  return contestants;
}

// Runs the cases, one after the other. Thread-compatible.
class CollectivesRun {
 public:
  CollectivesRun(const TurnOptions& turns, std::vector<Ensemble>* contestants, Rank* rank)
      : turns_(turns), contestants_(*contestants), rank_(*rank), report_(PeerNames(rank->peers)) {}

  absl::Status Run(const std::vector<CollectiveCase>& cases) {
    size_t bytes = 0;
    for (const CollectiveCase& shape : cases) bytes = std::max(bytes, shape.bytes());
    const AlignedBytes input(bytes);
    const AlignedBytes output(bytes);
    rank_.output.Print(report_.Header());
    for (size_t i = 0; i < cases.size(); ++i) {
      rank_.output.Progress(static_cast<double>(i) / static_cast<double>(cases.size()), cases[i].label());
      const bool is_in_place = cases[i].placement == Placement::kInPlace;
      RONDA_RETURN_IF_ERROR(RunCase(cases[i], {input.data(), is_in_place ? input.data() : output.data()}));
    }
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
    RONDA_ASSIGN_OR_RETURN(const std::vector<Ensemble*> prepared, Prepare(shape, buffers));
    for (Ensemble* contestant : prepared) contestant->Clear();
    std::vector<Block> blocks;
    for (Ensemble* contestant : prepared) {
      blocks.emplace_back([contestant](int iterations) { return contestant->Run(iterations); });
    }
    std::vector<Turns> turns = TakeTurns(blocks, turns_, &rank_.team);
    std::vector<CaseOutcome> outcomes;
    for (size_t i = 0; i < prepared.size(); ++i) {
      outcomes.push_back({.contestant = prepared[i]->name(),
                          .kind = prepared[i]->kind(),
                          .algorithm = prepared[i]->algorithm(),
                          .turns = std::move(turns[i]),
                          .wrong = rank_.team.Sum(prepared[i]->CountWrong())});
      wrong_ += outcomes.back().wrong;
    }
    rank_.output.Print(report_.Lines(shape, outcomes));
    for (ResultRow& row : report_.Rows(shape, outcomes)) rank_.results.Add(std::move(row));
    return absl::OkStatus();
  }

  // Those that can carry the case out.
  absl::StatusOr<std::vector<Ensemble*>> Prepare(const CollectiveCase& shape, const CaseBuffers& buffers) {
    std::vector<Ensemble*> prepared;
    for (Ensemble& contestant : contestants_) {
      RONDA_ASSIGN_OR_RETURN(const bool is_able, contestant.Prepare(shape, buffers));
      if (is_able) prepared.push_back(&contestant);
    }
    return prepared;
  }

  const TurnOptions turns_;
  std::vector<Ensemble>& contestants_;
  Rank& rank_;
  const CollectivesReport report_;
  int64_t wrong_ = 0;
};

absl::Status RunOnRank(const CollectivesOptions& options, Rank& rank) {
  const bool has_client = std::find(options.layers.begin(), options.layers.end(), "client") != options.layers.end();
  if (has_client) ronda::init();
  {
    RONDA_ASSIGN_OR_RETURN(std::vector<Ensemble> contestants, MakeContestants(options, rank));
    CollectivesRun run(options.turns, &contestants, &rank);
    RONDA_RETURN_IF_ERROR(run.Run(MakeCases(options.ranges, rank.team.size())));
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
    std::fprintf(stderr, "ronda-bench: --max-bytes (-e) is less than --min-bytes (-b)\n%s\n", flags.Usage().c_str());
    return kUsageError;
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
