#include "runtime/collectives/nccl/open_votes.h"

#include <utility>

#include "runtime/base/status_macros.h"

namespace ronda {
namespace {

constexpr size_t kMemoryBytes = 4096;
// A cache line each: the host looks at one while the device writes another.
constexpr size_t kVoteBytes = 64;

}  // namespace

OpenVote::Outcome DeviceVote::outcome() const {
  switch (std::atomic_ref<uint32_t>(*decision_).load(std::memory_order_acquire)) {
    case 0:
      return Outcome::kOpen;
    case 1:
      return Outcome::kCarriedOut;
    default:
      return Outcome::kVetoed;
  }
}

void DeviceVote::Reopen() { std::atomic_ref<uint32_t>(*decision_).store(0, std::memory_order_release); }

absl::StatusOr<std::shared_ptr<DeviceVote>> OpenVotes::New() {
  // The stream decides votes in the order in which they were handed out: if the oldest is still in use, so are most.
  if (!votes_.empty()) {
    std::shared_ptr<DeviceVote>& oldest = votes_[next_];
    if (oldest.use_count() == 1 && oldest->outcome() != OpenVote::Outcome::kOpen) {
      next_ = (next_ + 1) % votes_.size();
      oldest->Reopen();
      return oldest;
    }
  }
  return Add();
}

absl::StatusOr<std::shared_ptr<DeviceVote>> OpenVotes::Add() {
  if (words_ == nullptr || words_->used_bytes == words_->memory.size()) {
    auto words = std::make_shared<Words>();
    words->device = device_;
    RONDA_ASSIGN_OR_RETURN(words->memory, device_->Allocate(RONDA_CUDA_PINNED_HOST_MEMORY, kMemoryBytes, "votes"));
    words_ = std::move(words);
  }
  auto vote =
      std::make_shared<DeviceVote>(words_, reinterpret_cast<uint32_t*>(words_->memory.data() + words_->used_bytes));
  words_->used_bytes += kVoteBytes;
  vote->Reopen();
  // In front of the oldest, and thus the newest of all.
  votes_.insert(votes_.begin() + static_cast<ptrdiff_t>(next_), vote);
  next_ = (next_ + 1) % votes_.size();
  return vote;
}

}  // namespace ronda
