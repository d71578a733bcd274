#ifndef RONDA_RUNTIME_ENGINE_REDUCTIONS_H_
#define RONDA_RUNTIME_ENGINE_REDUCTIONS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "runtime/collectives/communicator.h"
#include "runtime/engine/bucket_run.h"
#include "runtime/engine/data_plane.h"
#include "runtime/engine/error_feedback.h"

namespace ronda {

// Carries out buckets of allreduce, reduce and reducescatter: one Reduce, or an Adasum, whatever the number of tensors.
//
// Where overflow is to be detected, all participants learn of a non-finite element in anybody's part of the result:
// an allreduce leaves the same bits everywhere, so each looks at its own; otherwise a second, tiny reduction tells.
//
// Thread-compatible: used by the thread that has the turn (engine_driver.h). The plane is not owned.
class Reductions {
 public:
  explicit Reductions(DataPlane* plane)
      : plane_(plane),
        feedback_([plane](absl::string_view tensor, size_t bytes) { return plane->AllocateZeros(tensor, bytes); }) {}

  // Errors: the communicator's; RESOURCE_EXHAUSTED if there is no memory for a result.
  absl::Status Run(const BucketRun& run);

  // The process set is no more: forget what was kept for its tensors.
  void Drop(ProcessSetId process_set) { feedback_.Drop(process_set); }

 private:
  // A root's result that cannot be written to its output before all of the input, at the same place, has been read.
  struct Staged {
    ResultData data;
    void* output;
    size_t bytes;
  };

  absl::Status PrepareSegments(const BucketRun& run);
  absl::Status PrepareOwnSegment(const BucketRun& run, size_t i, Segment* segment);
  absl::Status PreparePart(const BucketRun& run, size_t i, Segment* segment);
  absl::Status Reduce(const BucketRun& run);
  absl::Status DetectOverflow(const BucketRun& run);
  absl::Status VoteOnOverflow(const BucketRun& run, uint8_t* flags);

  DataPlane* const plane_;
  ErrorFeedback feedback_;
  std::vector<Segment> segments_;  // kept for its memory, as the next two
  std::vector<Staged> staged_;     // empty between calls
  std::vector<TensorView> parts_;  // by response: this rank's part of the result
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_ENGINE_REDUCTIONS_H_
