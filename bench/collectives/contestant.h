#ifndef RONDA_BENCH_COLLECTIVES_CONTESTANT_H_
#define RONDA_BENCH_COLLECTIVES_CONTESTANT_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "bench/collectives/collective_case.h"
#include "bench/peers/peer_library.h"
#include "bench/team.h"

namespace ronda::bench {

// The caller's memory for a case: input_count() and output_count() elements; equal pointers in place.
struct CaseBuffers {
  void* input = nullptr;
  void* output = nullptr;
};

// One of those that are timed in turns: a layer of Ronda, or a peer. Every rank makes the same calls.
// Thread-compatible.
class Contestant {
 public:
  enum class Kind { kRonda, kPeer };

  virtual ~Contestant() = default;

  virtual std::string name() const = 0;
  virtual Kind kind() const = 0;

  // Gets ready for Run() of `shape`, which replaces the one before; what this costs is not timed. False: this
  // contestant cannot carry it out. The buffers outlive the next Prepare() and this contestant.
  virtual absl::StatusOr<bool> Prepare(const CollectiveCase& shape, const CaseBuffers& buffers) = 0;

  // How the prepared case is carried out, where there is a choice; else empty.
  virtual std::string algorithm() const { return ""; }

  // Carries the prepared case out, and returns where its result is, until the next call. An error ends the process.
  virtual const void* Run() = 0;
};

// Ronda's communicator alone, as Connect() has it, apart from all others.
absl::StatusOr<std::unique_ptr<Contestant>> ConnectCommunicatorContestant(const Place& place,
                                                                          const ConnectOptions& options);

// The same of `ranks` ranks that are threads of this process, which run their contestants at the same time.
std::vector<std::unique_ptr<Contestant>> MakeInProcessContestants(int ranks);

// Ronda through the client's API, which must be initialized.
std::unique_ptr<Contestant> MakeClientContestant();

// `peer` and `team` outlive the contestant.
std::unique_ptr<Contestant> MakePeerContestant(Peer* peer, Team* team);

}  // namespace ronda::bench

#endif  // RONDA_BENCH_COLLECTIVES_CONTESTANT_H_
