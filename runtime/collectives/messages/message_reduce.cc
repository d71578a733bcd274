// SPDX-License-Identifier: Apache-2.0

#include "runtime/collectives/messages/message_reduce.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "absl/strings/str_cat.h"
#include "runtime/base/status_macros.h"

namespace ronda {
namespace {

constexpr size_t kCacheLineBytes = 64;
// In smaller messages, the overhead per message exceeds the cost of its data.
constexpr size_t kMinSliceBytes = 16 << 10;
// With more segments than this, the ranks do not announce which parts they receive.
constexpr size_t kMaxAnnouncedSegments = 256;
// If no rank receives more than kMaxShares times an equal share, each rank reduces everything that it receives.
constexpr size_t kMaxShares = 2;
constexpr uint64_t kSlots = 2;

constexpr size_t RoundUp(size_t n, size_t multiple) { return (n + multiple - 1) / multiple * multiple; }

}  // namespace

MessageReduce::MessageReduce(const ReduceArithmetic& reduction, const Members& members, size_t chunk_bytes,
                             MessageLink& link, Dissemination& exchange, MessageReduceMemory& memory)
    : members_(members),
      reduction_(reduction),
      granule_bytes_(reduction.layout().granule_bytes),
      chunk_bytes_(chunk_bytes),
      link_(link),
      exchange_(exchange),
      memory_(memory),
      running_(link.Running(reduction.call().info, reduction.input_bytes())) {}

absl::Status MessageReduce::Run() {
  RONDA_RETURN_IF_ERROR(Announce());
  if (IsVetoed(reduction_.call().info)) return absl::OkStatus();
  DecideRegions();
  AllocateScratch();
  for (uint64_t step = 0; step < slices_ + 2; ++step) {
    if (step < slices_) RONDA_RETURN_IF_ERROR(Contribute(step));
    if (1 <= step && step <= slices_) RONDA_RETURN_IF_ERROR(ReduceSlice(step - 1));
    if (2 <= step) RONDA_RETURN_IF_ERROR(Finish(step - 2));
  }
  return absl::OkStatus();
}

absl::Status MessageReduce::Announce() {
  const ReduceCall& call = reduction_.call();
  const bool has_parts = call.delivery == ReduceCall::Delivery::kParts;
  results_ = has_parts ? Results::kToFew : Results::kToAll;
  if (call.info.ballot == nullptr && !has_parts) return absl::OkStatus();
  char* const block = exchange_.Begin(members_, has_parts ? WantedBytes() : 0);
  if (has_parts) WriteWanted(block);
  RONDA_RETURN_IF_ERROR(exchange_.Run(call.info, running_.bytes_total));
  return has_parts && !IsVetoed(call.info) ? ReadWanted() : absl::OkStatus();
}

bool MessageReduce::AnnouncesRanges() const {
  // Two ranks could receive parts of the same granule if granules had several elements, but each granule may be packed
  // only once.
  return reduction_.layout().granule_elements == 1 && reduction_.call().segments.size() <= kMaxAnnouncedSegments;
}

size_t MessageReduce::WantedBytes() const {
  return sizeof(uint64_t) + (AnnouncesRanges() ? reduction_.call().segments.size() * sizeof(Range) : 0);
}

void MessageReduce::WriteWanted(char* block) const {
  uint64_t wanted = 0;
  size_t first = 0;
  char* at = block + sizeof(wanted);
  for (const Segment& segment : reduction_.call().segments) {
    wanted += segment.part_count;
    const Range range = {.begin = first + segment.part_begin, .count = segment.part_count};
    first += segment.count;
    if (!AnnouncesRanges()) continue;
    std::memcpy(at, &range, sizeof(range));
    at += sizeof(range);
  }
  std::memcpy(block, &wanted, sizeof(wanted));
}

absl::Status MessageReduce::ReadWanted() {
  const size_t segments = reduction_.call().segments.size();
  memory_.wants_any.assign(static_cast<size_t>(members_.size()), 0);
  memory_.regions.Reset(segments);
  for (int member = 0; member < members_.size(); ++member) {
    const char* at = exchange_.BlockOf(member);
    uint64_t wanted = 0;
    std::memcpy(&wanted, at, sizeof(wanted));
    memory_.wants_any[static_cast<size_t>(member)] = wanted > 0 ? 1 : 0;
    at += sizeof(wanted);
    for (size_t i = 0; AnnouncesRanges() && i < segments; ++i, at += sizeof(Range)) {
      Range range;
      std::memcpy(&range, at, sizeof(range));
      if (range.begin > reduction_.granules() || range.count > reduction_.granules() - range.begin) {
        return absl::InternalError(absl::StrCat("member ", member, " of '", running_.label,
                                                "' wants elements that do not exist: ", range.count, " elements from ",
                                                range.begin, " of ", reduction_.granules()));
      }
      memory_.regions.Add(range);
    }
  }
  const size_t share = reduction_.granules() / static_cast<size_t>(members_.size()) + 1;
  if (AnnouncesRanges() && memory_.regions.MostGranules() <= kMaxShares * share) results_ = Results::kToNobody;
  return absl::OkStatus();
}

void MessageReduce::DecideRegions() {
  const size_t unit = std::max<size_t>(1, kCacheLineBytes / granule_bytes_);
  if (results_ != Results::kToNobody) memory_.regions.Divide(reduction_.granules(), unit, members_.size());
  const size_t most = memory_.regions.MostGranules();
  const size_t wanted_bytes = std::max(kMinSliceBytes, chunk_bytes_ / static_cast<size_t>(members_.size()));
  const size_t longest = std::max<size_t>(1, wanted_bytes / granule_bytes_);
  slices_ = (most + longest - 1) / longest;
  // All slices have the same size, because a short last slice would leave less work to overlap.
  slice_granules_ = slices_ == 0 ? 1 : RoundUp((most + slices_ - 1) / slices_, unit);
  slice_bytes_ = RoundUp(slice_granules_ * granule_bytes_, PageScratch::kPageBytes);
}

void MessageReduce::AllocateScratch() {
  const size_t bytes = slices_ == 0 ? 0 : slice_bytes_ * static_cast<size_t>(members_.size()) * kSlots;
  const bool in_one_piece = reduction_.call().segments.size() == 1;
  memory_.contributions.Grow(bytes);
  if (!reduction_.ContributesInputItself() || !in_one_piece) memory_.packed.Grow(bytes);
  const bool results_in_tensors = results_ == Results::kToNobody ||
                                  (results_ == Results::kToAll && reduction_.DeliversWireItself() && in_one_piece);
  if (!results_in_tensors) memory_.results.Grow(bytes);
  memory_.sources.resize(static_cast<size_t>(members_.size()));
}

absl::Status MessageReduce::Contribute(uint64_t k) {
  const int size = members_.size();
  const int self = members_.self();
  // Each rank starts with the next rank, so that they do not all send to the same rank at once.
  for (int i = 1; i < size; ++i) {
    const int sender = (self + size - i) % size;
    RONDA_RETURN_IF_ERROR(link_.Receive(At(memory_.contributions, sender, k), BytesOf(self, k), members_[sender],
                                        memory_.arriving[k % kSlots]));
  }
  for (int i = 1; i < size; ++i) RONDA_RETURN_IF_ERROR(SendContribution(k, (self + i) % size));
  if (!reduction_.ContributesInputItself()) Pack(self, k, At(memory_.contributions, self, k));
  return absl::OkStatus();
}

absl::Status MessageReduce::SendContribution(uint64_t k, int receiver) {
  const char* data = InputOf(receiver, k);
  if (data == nullptr) {
    char* const packed = At(memory_.packed, receiver, k);
    Pack(receiver, k, packed);
    data = packed;
  }
  return link_.Send(data, BytesOf(receiver, k), members_[receiver], memory_.leaving[k % kSlots]);
}

absl::Status MessageReduce::ReduceSlice(uint64_t k) {
  RONDA_RETURN_IF_ERROR(link_.Wait(memory_.arriving[k % kSlots], running_));
  const int self = members_.self();
  if (results_ == Results::kToNobody) {
    RONDA_RETURN_IF_ERROR(link_.Wait(memory_.leaving[k % kSlots], running_));
    ReduceOwn(k, nullptr);
  } else {
    // This writes only to this rank's region, so its contributions to other regions can still be sent meanwhile.
    ReduceOwn(k, ResultOf(self, k));
    RONDA_RETURN_IF_ERROR(SendResults(k));
    if (Receives(self) && OutputOf(self, k) == nullptr) Unpack(self, k, ResultOf(self, k));
    RONDA_RETURN_IF_ERROR(link_.Wait(memory_.leaving[k % kSlots], running_));
    RONDA_RETURN_IF_ERROR(ReceiveResults(k));
  }
  running_.bytes_done = running_.bytes_total / slices_ * (k + 1);
  return absl::OkStatus();
}

void MessageReduce::ReduceOwn(uint64_t k, char* wire) {
  const int self = members_.self();
  const Range slice = SliceOf(self, k);
  memory_.regions.ForEachRange(self, slice.begin, slice.count, [&](Range range, size_t range_offset) {
    reduction_.buffer().ForEachRun(range.begin, range.count, [&](const ReduceArithmetic::Run& run) {
      const size_t offset = (range_offset + run.offset) * granule_bytes_;
      for (int member = 0; member < members_.size(); ++member) {
        memory_.sources[static_cast<size_t>(member)] = At(memory_.contributions, member, k) + offset;
      }
      if (reduction_.ContributesInputItself()) {
        memory_.sources[static_cast<size_t>(self)] = reduction_.InputOf(run);
      }
      if (wire == nullptr) return reduction_.Deliver(run, memory_.sources);
      reduction_.ReduceToWire(memory_.sources, run.count, wire + offset);
    });
  });
}

absl::Status MessageReduce::ReceiveResults(uint64_t k) {
  const int size = members_.size();
  for (int i = 1; i < size && Receives(members_.self()); ++i) {
    const int sender = (members_.self() + size - i) % size;
    RONDA_RETURN_IF_ERROR(
        link_.Receive(ResultOf(sender, k), BytesOf(sender, k), members_[sender], memory_.delivering[k % kSlots]));
  }
  return absl::OkStatus();
}

absl::Status MessageReduce::SendResults(uint64_t k) {
  const int size = members_.size();
  const int self = members_.self();
  for (int i = 1; i < size; ++i) {
    const int receiver = (self + i) % size;
    if (!Receives(receiver)) continue;
    RONDA_RETURN_IF_ERROR(
        link_.Send(ResultOf(self, k), BytesOf(self, k), members_[receiver], memory_.delivering[k % kSlots]));
  }
  return absl::OkStatus();
}

absl::Status MessageReduce::Finish(uint64_t k) {
  RONDA_RETURN_IF_ERROR(link_.Wait(memory_.delivering[k % kSlots], running_));
  if (results_ == Results::kToNobody || !Receives(members_.self())) return absl::OkStatus();
  for (int member = 0; member < members_.size(); ++member) {
    if (member != members_.self() && OutputOf(member, k) == nullptr) Unpack(member, k, ResultOf(member, k));
  }
  return absl::OkStatus();
}

void MessageReduce::Pack(int member, uint64_t k, char* wire) const {
  const Range slice = SliceOf(member, k);
  memory_.regions.ForEachRange(member, slice.begin, slice.count, [&](Range range, size_t offset) {
    reduction_.Pack(range.begin, range.count, wire + offset * granule_bytes_);
  });
}

void MessageReduce::Unpack(int member, uint64_t k, const char* wire) const {
  const Range slice = SliceOf(member, k);
  memory_.regions.ForEachRange(member, slice.begin, slice.count, [&](Range range, size_t offset) {
    reduction_.Unpack(range.begin, range.count, wire + offset * granule_bytes_);
  });
}

MessageReduce::Range MessageReduce::SliceOf(int member, uint64_t k) const {
  const size_t granules = memory_.regions.GranulesOf(member);
  const size_t begin = std::min(granules, k * slice_granules_);
  return {.begin = begin, .count = std::min(slice_granules_, granules - begin)};
}

bool MessageReduce::Receives(int member) const {
  return results_ == Results::kToAll || memory_.wants_any[static_cast<size_t>(member)] != 0;
}

template <typename Address>
auto MessageReduce::InOnePiece(int member, uint64_t k, const Address& address) const {
  const Range slice = SliceOf(member, k);
  int pieces = 0;
  std::invoke_result_t<Address, const ReduceArithmetic::Run&> address_of_piece = nullptr;
  memory_.regions.ForEachRange(member, slice.begin, slice.count, [&](Range range, size_t) {
    reduction_.buffer().ForEachRun(range.begin, range.count, [&](const ReduceArithmetic::Run& run) {
      ++pieces;
      address_of_piece = address(run);
    });
  });
  return pieces == 1 ? address_of_piece : nullptr;
}

const char* MessageReduce::InputOf(int member, uint64_t k) const {
  if (!reduction_.ContributesInputItself()) return nullptr;
  return static_cast<const char*>(
      InOnePiece(member, k, [&](const ReduceArithmetic::Run& run) { return reduction_.InputOf(run); }));
}

char* MessageReduce::OutputOf(int member, uint64_t k) const {
  if (results_ != Results::kToAll || !reduction_.DeliversWireItself()) return nullptr;
  return static_cast<char*>(
      InOnePiece(member, k, [&](const ReduceArithmetic::Run& run) { return reduction_.OutputOf(run); }));
}

char* MessageReduce::ResultOf(int member, uint64_t k) const {
  char* const output = OutputOf(member, k);
  return output != nullptr ? output : At(memory_.results, member, k);
}

char* MessageReduce::At(const PageScratch& scratch, int member, uint64_t k) const {
  const size_t slot = k % kSlots * static_cast<size_t>(members_.size()) + static_cast<size_t>(member);
  return scratch.data() + slot * slice_bytes_;
}

}  // namespace ronda
