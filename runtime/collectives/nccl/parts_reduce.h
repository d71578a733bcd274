#ifndef RONDA_RUNTIME_COLLECTIVES_NCCL_PARTS_REDUCE_H_
#define RONDA_RUNTIME_COLLECTIVES_NCCL_PARTS_REDUCE_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "kernels/cuda/calls.h"
#include "runtime/collectives/communicator.h"
#include "runtime/collectives/nccl/nccl_groups.h"
#include "runtime/collectives/nccl/stream_buffer.h"
#include "runtime/collectives/transport.h"
#include "runtime/cuda/device.h"

namespace ronda {

// Reductions in which each member receives another part, none of them much larger than the others: a reducescatter.
// Each member is sent the contributions to its part and nothing else, half the bytes of an allreduce.
//
// For that the members must know each other's parts. They announce them over the communicator of the host, so the host
// waits for the other hosts' threads, but not for the device. Small reductions do without it.
//
// Thread-compatible. The objects of its options must outlive it.
class PartsReduce {
 public:
  struct Options {
    Device* device = nullptr;
    StreamHandle stream = nullptr;
    NcclGroups* groups = nullptr;
    Communicator* host = nullptr;
    StreamMarks* marks = nullptr;  // may be nullptr
    StreamBuffer* packed = nullptr;
    StreamBuffer* arrived = nullptr;
  };

  explicit PartsReduce(const Options& options) : options_(options) {}

  // Lets the members announce their parts if that pays off. fits() then says whether Run serves the call. All ranks of
  // the job call it for every reduction. Errors: those of the host's communicator; INTERNAL if a member wants elements
  // that do not exist.
  absl::Status Agree(const ReduceCall& call, const Members& members);
  bool fits() const { return fits_; }

  // REQUIRES: the last call of Agree had these arguments, and fits().
  absl::Status Run(const ReduceCall& call, const Members& members, NcclGroups::Entry* entry);

 private:
  // The elements of a tensor that a member receives.
  struct Part {
    uint64_t begin;
    uint64_t count;
  };
  // The part of the buffer with a member's parts, one after the other.
  struct Region {
    size_t begin;
    size_t bytes;
  };

  absl::Status Check(const ReduceCall& call) const;
  // Lays out the regions. Returns whether all of them are of similar length.
  bool Lay(const ReduceCall& call, int members);
  absl::Status Pack(const ReduceCall& call, std::byte* packed);
  absl::Status Exchange(const ReduceCall& call, const Members& members, NcclGroups::Entry* entry,
                        const std::byte* packed, std::byte* arrived);
  absl::Status Deliver(const ReduceCall& call, const Members& members, std::byte* packed, const std::byte* arrived);

  const Options options_;
  bool fits_ = false;
  std::vector<Part> own_;          // by tensor
  std::vector<Part> all_;          // by member and tensor
  std::vector<size_t> offsets_;    // of all_, in the buffer
  std::vector<Region> regions_;    // by member
  std::vector<size_t> all_bytes_;  // kept for its memory, as the next two are
  std::vector<kernels::cuda::PackSegment> packs_;
  std::vector<kernels::cuda::UnpackSegment> unpacks_;
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_COLLECTIVES_NCCL_PARTS_REDUCE_H_
