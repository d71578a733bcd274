// SPDX-License-Identifier: Apache-2.0

#include "runtime/collectives/nccl/device_votes.h"

#include <cstdint>
#include <cstring>
#include <utility>

#include "runtime/base/status_macros.h"

namespace ronda {
namespace {

constexpr size_t kMemoryBytes = 4096;
// One cache line per vote: the host reads one while the device writes another.
constexpr size_t kVoteBytes = 64;
constexpr size_t kGateOffset = sizeof(uint32_t);

// The bits of 1 as a little-endian element, lowest byte first.
uint64_t BitsOfOne(DType dtype) {
  switch (dtype) {
    case DType::kFloat16:
      return 0x3c00;
    case DType::kBfloat16:
      return 0x3f80;
    case DType::kFloat32:
      return 0x3f800000;
    case DType::kFloat64:
      return 0x3ff0000000000000;
    default:
      return 1;
  }
}

}  // namespace

absl::StatusOr<std::shared_ptr<OpenVote>> OpenVotes::New() {
  // The stream decides votes in the order in which they were handed out. If the oldest is still in use, most are.
  if (!votes_.empty()) {
    std::shared_ptr<OpenVote>& oldest = votes_[next_];
    if (oldest.use_count() == 1 && oldest->outcome() != OpenVote::Outcome::kOpen) {
      next_ = (next_ + 1) % votes_.size();
      oldest->Reopen();
      return oldest;
    }
  }
  return Add();
}

absl::StatusOr<std::shared_ptr<OpenVote>> OpenVotes::Add() {
  if (words_ == nullptr || words_->used_bytes == words_->memory.size()) {
    auto words = std::make_shared<Words>();
    words->device = device_;
    RONDA_ASSIGN_OR_RETURN(words->memory, device_->Allocate(RONDA_CUDA_PINNED_HOST_MEMORY, kMemoryBytes, "votes"));
    words_ = std::move(words);
  }
  std::byte* const words = words_->memory.data() + words_->used_bytes;
  std::memset(words, 0, kVoteBytes);
  auto vote = std::make_shared<OpenVote>(words_, reinterpret_cast<uint32_t*>(words),
                                         reinterpret_cast<uint32_t*>(words + kGateOffset));
  words_->used_bytes += kVoteBytes;
  vote->Reopen();
  // Before the oldest in the ring, which makes it the newest.
  votes_.insert(votes_.begin() + static_cast<ptrdiff_t>(next_), vote);
  next_ = (next_ + 1) % votes_.size();
  return vote;
}

absl::StatusOr<VoteValues> VoteValues::Create(Device* device, StreamHandle stream) {
  constexpr size_t kAll = (1 + kDTypeCount) * kBytes;
  RONDA_ASSIGN_OR_RETURN(DeviceMemory source, device->Allocate(RONDA_CUDA_PINNED_HOST_MEMORY, kAll, "votes"));
  RONDA_ASSIGN_OR_RETURN(DeviceMemory memory, device->Allocate(RONDA_CUDA_DEVICE_MEMORY, kAll, "votes"));
  std::memset(source.data(), 0, kBytes);
  for (int i = 0; i < kDTypeCount; ++i) {
    const uint64_t bits = BitsOfOne(static_cast<DType>(i));
    std::memcpy(source.data() + (1 + static_cast<size_t>(i)) * kBytes, &bits, kBytes);
  }
  RONDA_RETURN_IF_ERROR(device->Call(
      "copying", [&](const ronda_cuda_plugin& cuda) { return cuda.copy(memory.data(), source.data(), kAll, stream); }));
  return VoteValues(std::move(source), std::move(memory));
}

}  // namespace ronda
