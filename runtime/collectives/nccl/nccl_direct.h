// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_RUNTIME_COLLECTIVES_NCCL_NCCL_DIRECT_H_
#define RONDA_RUNTIME_COLLECTIVES_NCCL_NCCL_DIRECT_H_

#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "runtime/collectives/nccl/nccl_arithmetic.h"
#include "runtime/collectives/nccl/nccl_groups.h"
#include "runtime/collectives/nccl/nccl_library.h"
#include "runtime/collectives/transport.h"

namespace ronda {

// Executes direct calls over NCCL, on separate communicators. Each is a single NCCL call on the caller's memory,
// without packing. An exchange is one group of sends and receives, and a copy of the rank's part for itself. NCCL
// executes the same reductions as for the engine (NcclOpOf). It also applies the factor of a scaled sum or an average,
// if the tensor's type can represent the factor accurately.
//
// If the settings ask for memory, all ranks register memory of this size with the communicator, as symmetric windows
// where NCCL has windows (kOldestWindows). A rank that has no room for it fails. There is no memory if NCCL has no
// allocator, or if the ranks are on several hosts: a rank can read only the calls of ranks on its own host, and calls
// that differ could make wrong numbers.
class NcclDirect : public DirectTransport {
 public:
  struct Settings {
    SumOrder order = SumOrder::kOfNccl;
    size_t memory_bytes = 0;                                            // that the ranks register together; 0: none
    enum class Hosts : uint8_t { kOne, kSeveral } hosts = Hosts::kOne;  // of the ranks
  };

  // How long NCCL may take to connect the ranks once all of them have called.
  static constexpr absl::Duration kInitDeadline = absl::Minutes(1);

  // Connects the ranks. After an error the job fails. REQUIRES: there are at least two ranks.
  // Errors: the errors of NcclGroups::For, AllocateMemory and RegisterInTime.
  static absl::StatusOr<std::unique_ptr<NcclDirect>> Connect(const DeviceSupport::DirectRequest& request,
                                                             std::shared_ptr<const NcclLibrary> library,
                                                             const Settings& settings);

  // REQUIRES: the stream has finished, or Abort() has been called.
  ~NcclDirect() override { groups_.End(); }

  bool Reduces(DType dtype, ReduceOp reduction, const kernels::Scale& scale) const override;
  absl::Status Run(const DirectCall& call) override;
  absl::StatusOr<DirectMemory> memory() const override { return memory_; }
  absl::Status failure() const override { return groups_.failure(); }
  void Abort() override { groups_.Abort(); }

 private:
  // `memory` has the wanted size and no data yet, or the reason why there will be no memory.
  NcclDirect(const DeviceSupport::DirectRequest& request, const std::shared_ptr<const NcclLibrary>& library,
             SumOrder order, absl::StatusOr<DirectMemory> memory);

  // Makes the communicators and the memory. Errors: as Connect.
  absl::Status Prepare(const DeviceSupport::DirectRequest& request);
  StreamHandle StreamOf(const DirectCall& call) const { return call.stream == nullptr ? stream_ : call.stream; }
  NcclResult Enqueue(const DirectCall& call, const NcclFunctions& nccl, NcclHandle handle) const;
  NcclResult Reduce(const DirectCall& call, const NcclFunctions& nccl, NcclHandle handle) const;
  absl::Status Exchange(const DirectCall& call);
  NcclResult SendAndReceive(const DirectCall& call, const NcclFunctions& nccl, NcclHandle handle) const;
  // Copies this rank's part for itself.
  absl::Status CopyOwn(const DirectCall& call) const;

  const int size_;
  const int self_;
  const std::shared_ptr<Device> device_;
  const StreamHandle stream_;
  const SumOrder order_;
  absl::StatusOr<DirectMemory> memory_;  // freed after the communicators have ended
  NcclGroups groups_;
  NcclGroups::Entry* entry_ = nullptr;
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_COLLECTIVES_NCCL_NCCL_DIRECT_H_
