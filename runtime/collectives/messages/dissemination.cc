#include "runtime/collectives/messages/dissemination.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "runtime/base/status_macros.h"

namespace ronda {
namespace {

constexpr int kFanOut = 8;
constexpr uint64_t kStays = 0;
constexpr uint64_t kLeaves = 1;

}  // namespace

char* Dissemination::Begin(const Members& members, size_t bytes) {
  members_ = &members;
  block_bytes_ = (sizeof(Vote) + bytes + alignof(Vote) - 1) / alignof(Vote) * alignof(Vote);
  const size_t needed = block_bytes_ * static_cast<size_t>(members.size());
  if (blocks_.size() < needed) blocks_.resize(needed);
  return At(0) + sizeof(Vote);
}

absl::Status Dissemination::Run(const CallInfo& info, size_t bytes_total) {
  Ballot* const ballot = info.ballot;
  const Vote own = ballot != nullptr && ballot->own == Ballot::Vote::kLeave ? kLeaves : kStays;
  std::memcpy(At(0), &own, sizeof(own));
  std::optional<LateCall> late_call;
  if (ballot != nullptr) late_call.emplace(ballot->when_late);
  int steps = 0;
  for (int held = 1; held < members_->size(); held *= kFanOut) {
    RunningCollective running = link_.Running(info, bytes_total, steps++);
    if (late_call.has_value()) running.late_call = &*late_call;
    RONDA_RETURN_IF_ERROR(Step(held, running));
  }
  RONDA_RETURN_IF_ERROR(link_.Wait(sends_, link_.Running(info, bytes_total, steps)));
  if (ballot != nullptr) ballot->result = CountVotes();
  return absl::OkStatus();
}

absl::Status Dissemination::Step(int held, const RunningCollective& running) {
  const int size = members_->size();
  for (int place = held; place < std::min(size, kFanOut * held); place += held) {
    const size_t bytes = static_cast<size_t>(std::min(held, size - place)) * block_bytes_;
    RONDA_RETURN_IF_ERROR(link_.Receive(At(place), bytes, MemberAt(place), receives_));
    RONDA_RETURN_IF_ERROR(link_.Send(At(0), bytes, MemberAt(size - place), sends_));
  }
  return link_.Wait(receives_, running);
}

Ballot::Result Dissemination::CountVotes() const {
  for (int place = 0; place < members_->size(); ++place) {
    Vote vote = kStays;
    std::memcpy(&vote, At(place), sizeof(vote));
    if (vote != kStays) return Ballot::Result::kVetoed;
  }
  return Ballot::Result::kCarriedOut;
}

}  // namespace ronda
