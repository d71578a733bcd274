#include "bench/collectives/collectives_command.h"

#include <algorithm>
#include <cstdio>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "bench/arguments.h"
#include "bench/collectives/collective_case.h"
#include "bench/collectives/collectives_report.h"
#include "bench/collectives/contestant.h"
#include "bench/collectives/elements.h"
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

using Contestants = std::vector<std::unique_ptr<Contestant>>;

absl::StatusOr<Contestants> MakeContestants(const CollectivesOptions& options, Rank& rank) {
  Contestants contestants;
  for (const std::string& layer : options.layers) {
    if (layer == "client") {
      contestants.push_back(MakeClientContestant());
      continue;
    }
    RONDA_ASSIGN_OR_RETURN(contestants.emplace_back(), ConnectCommunicatorContestant(rank.place, options.communicator));
  }
  for (const std::unique_ptr<Peer>& peer : rank.peers) {
    contestants.push_back(MakePeerContestant(peer.get(), &rank.team));
  }
  return contestants;
}

// Runs the cases, one after the other. Thread-compatible.
class CollectivesRun {
 public:
  CollectivesRun(const TurnOptions& turns, Contestants* contestants, Rank* rank)
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
    RONDA_ASSIGN_OR_RETURN(const std::vector<Contestant*> prepared, Prepare(shape, buffers));
    // Zeros stay zeros, however often they are added up.
    FillZeros(shape, buffers);
    std::vector<std::function<void()>> blocks;
    for (Contestant* contestant : prepared) blocks.emplace_back([contestant] { contestant->Run(); });
    std::vector<Turns> turns = TakeTurns(blocks, turns_, &rank_.team);
    std::vector<CaseOutcome> outcomes;
    for (size_t i = 0; i < prepared.size(); ++i) {
      outcomes.push_back({.contestant = prepared[i]->name(),
                          .kind = prepared[i]->kind(),
                          .algorithm = prepared[i]->algorithm(),
                          .turns = std::move(turns[i]),
                          .wrong = Check(shape, buffers, prepared[i])});
      wrong_ += outcomes.back().wrong;
    }
    rank_.output.Print(report_.Lines(shape, outcomes));
    for (ResultRow& row : report_.Rows(shape, outcomes)) rank_.results.Add(std::move(row));
    return absl::OkStatus();
  }

  // Those that can carry the case out.
  absl::StatusOr<std::vector<Contestant*>> Prepare(const CollectiveCase& shape, const CaseBuffers& buffers) {
    std::vector<Contestant*> prepared;
    for (const std::unique_ptr<Contestant>& contestant : contestants_) {
      RONDA_ASSIGN_OR_RETURN(const bool is_able, contestant->Prepare(shape, buffers));
      if (is_able) prepared.push_back(contestant.get());
    }
    return prepared;
  }

  static void FillZeros(const CollectiveCase& shape, const CaseBuffers& buffers) {
    std::fill_n(static_cast<char*>(buffers.input), shape.input_count() * SizeOf(shape.dtype), char{0});
    std::fill_n(static_cast<char*>(buffers.output), shape.output_count() * SizeOf(shape.dtype), char{0});
  }

  int64_t Check(const CollectiveCase& shape, const CaseBuffers& buffers, Contestant* contestant) {
    FillOutput(shape, buffers.output);
    if (shape.op != OpType::kBroadcast || rank_.team.is_first()) FillInput(shape, rank_.team.rank(), buffers.input);
    const void* const result = contestant->Run();
    return rank_.team.Sum(CountWrong(shape, rank_.team.rank(), result));
  }

  const TurnOptions turns_;
  Contestants& contestants_;
  Rank& rank_;
  const CollectivesReport report_;
  int64_t wrong_ = 0;
};

absl::Status RunOnRank(const CollectivesOptions& options, Rank& rank) {
  const bool has_client = std::find(options.layers.begin(), options.layers.end(), "client") != options.layers.end();
  if (has_client) ronda::init();
  {
    RONDA_ASSIGN_OR_RETURN(Contestants contestants, MakeContestants(options, rank));
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
