#ifndef RONDA_BENCH_COLLECTIVES_ENSEMBLE_H_
#define RONDA_BENCH_COLLECTIVES_ENSEMBLE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "bench/collectives/collective_case.h"
#include "bench/collectives/contestant.h"
#include "bench/collectives/elements.h"

namespace ronda::bench {

// The ranks of one contestant that live in this process: one, which is the calling thread; or, where ranks are threads,
// all of them in the first process and none in the others. Every process makes the same calls. Thread-compatible.
class Ensemble {
 public:
  // `contestant` is rank `rank`.
  Ensemble(std::unique_ptr<Contestant> contestant, int rank);

  // `contestants` are ranks 0 and up; empty in all processes but the first. `name` is theirs.
  Ensemble(std::string name, std::vector<std::unique_ptr<Contestant>> contestants);

  const std::string& name() const { return name_; }
  Contestant::Kind kind() const;
  std::string algorithm() const;

  // As Contestant::Prepare. `buffers` are those of the first rank here; the others have their own.
  absl::StatusOr<bool> Prepare(const CollectiveCase& shape, const CaseBuffers& buffers);

  // Sets what the ranks here give and receive to zeros, which stay zeros however often they are added up.
  void Clear();

  // Carries the prepared case out `times` times. Returns the seconds that it took the slowest rank here, from when all
  // of them were ready.
  double Run(int times);

  // Carries it out once more, and checks every element; returns how many are wrong on the ranks here.
  int64_t CountWrong();

 private:
  struct Member {
    std::unique_ptr<Contestant> contestant;
    int rank = 0;
    CaseBuffers buffers = {};
    std::vector<AlignedBytes> memory = {};  // of `buffers`, unless they are the caller's
  };

  // Calls `body` for all members at the same time, on threads of their own if there are several.
  void ForEach(absl::FunctionRef<void(Member& member)> body);

  std::string name_;
  std::vector<Member> members_;
  CollectiveCase shape_;
};

}  // namespace ronda::bench

#endif  // RONDA_BENCH_COLLECTIVES_ENSEMBLE_H_
