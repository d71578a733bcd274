#ifndef RONDA_RUNTIME_COLLECTIVES_NCCL_PARTS_REDUCE_H_
#define RONDA_RUNTIME_COLLECTIVES_NCCL_PARTS_REDUCE_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "kernels/cuda/calls.h"
#include "runtime/collectives/communicator.h"
#include "runtime/collectives/device_transport.h"
#include "runtime/collectives/nccl/nccl_groups.h"
#include "runtime/collectives/nccl/stream_buffer.h"
#include "runtime/cuda/device.h"

namespace ronda {

// Reductions of which each member receives another part, none much more than others: a reducescatter. Each member is
// sent what it is to receive, and nothing else: half the bytes of an allreduce.
//
// For that the members must know what the others receive. They tell each other over the communicator of the host, which
// makes the host wait for the other hosts' threads, not for the device; small reductions do without it.
//
// Thread-compatible. What it is made of must outlive it.
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

  // Has the members tell each other what they receive, if it is worth that: fits() then says whether Run is the way to
  // go. All ranks of the job call it for every reduction.
  // Errors: the host's communicator's; INTERNAL if a member wants what is not there.
  absl::Status Agree(const ReduceCall& call, const Members& members);
  bool fits() const { return fits_; }

  // REQUIRES: Agree(call, members) has just found that it fits.
  absl::Status Run(const ReduceCall& call, const Members& members, NcclGroups::Entry* entry);

 private:
  // What a member receives of a tensor, in elements.
  struct Part {
    uint64_t begin;
    uint64_t count;
  };
  // Where the parts of a member lie in the buffer, one after the other.
  struct Region {
    size_t begin;
    size_t bytes;
  };

  absl::Status Check(const ReduceCall& call) const;
  // Lays out the regions. Returns whether none is much longer than others.
  bool Lay(const ReduceCall& call, int members);
  absl::Status Pack(const ReduceCall& call, std::byte* packed);
  absl::Status Exchange(const ReduceCall& call, const Members& members, NcclGroups::Entry* entry,
                        const std::byte* packed, std::byte* arrived);
  absl::Status Deliver(const ReduceCall& call, const Members& members, std::byte* packed, const std::byte* arrived);

  const Options options_;
  bool fits_ = false;
  std::vector<Part> own_;          // by tensor
  std::vector<Part> all_;          // by member and tensor
  std::vector<size_t> offsets_;    // of the same, in the buffer
  std::vector<Region> regions_;    // by member
  std::vector<size_t> all_bytes_;  // kept for their memory, as the next two
  std::vector<kernels::cuda::PackSegment> packs_;
  std::vector<kernels::cuda::UnpackSegment> unpacks_;
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_COLLECTIVES_NCCL_PARTS_REDUCE_H_
