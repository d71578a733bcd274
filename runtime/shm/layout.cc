// SPDX-License-Identifier: Apache-2.0

#include "runtime/shm/layout.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace ronda {
namespace {

constexpr size_t kMaxSlotBytes = size_t{64} << 20;
constexpr int kMaxSlotCount = 256;
constexpr size_t kRingStride = sizeof(ShmRingHeader) + kShmRingBytes;

constexpr size_t RoundUpToPage(size_t bytes) { return (bytes + kShmPageBytes - 1) / kShmPageBytes * kShmPageBytes; }

constexpr size_t RanksOffset() { return kShmPageBytes; }
constexpr size_t RingsOffset(int size) { return RanksOffset() + RoundUpToPage(size * sizeof(ShmRankBlock)); }
constexpr size_t FlightsOffset(int size) { return RingsOffset(size) + RoundUpToPage(size * 2 * kRingStride); }
constexpr size_t FlatOffset(int size) { return FlightsOffset(size) + RoundUpToPage(size * sizeof(FlightRecorder)); }
constexpr size_t kFlatLinesOfRank = kShmFlatTurns * kShmFlatLines;
constexpr size_t DataOffset(int size) {
  return FlatOffset(size) + RoundUpToPage(size * kFlatLinesOfRank * sizeof(ShmFlatLine));
}

}  // namespace

bool FailureRecord::Set(RankId writer, const absl::Status& failure) {
  return SetFrom(kEmpty, writer, failure.code(), failure.message());
}

bool FailureRecord::SetAfterDeathOf(RankId dead, RankId writer, absl::string_view text) {
  constexpr absl::StatusCode kCode = absl::StatusCode::kUnavailable;
  return SetFrom(kEmpty, writer, kCode, text) || SetFrom(WrittenBy(dead), writer, kCode, text);
}

bool FailureRecord::SetFrom(uint32_t expected, RankId writer, absl::StatusCode code, absl::string_view text) {
  if (!state_.compare_exchange_strong(expected, WrittenBy(writer), std::memory_order_acq_rel)) return false;
  code_ = static_cast<uint32_t>(code);
  text_bytes_ = static_cast<uint32_t>(std::min<size_t>(text.size(), kTextBytes));
  std::memcpy(text_, text.data(), text_bytes_);
  state_.store(kWritten, std::memory_order_release);
  return true;
}

absl::Status FailureRecord::Get() const {
  if (!IsSet()) return absl::OkStatus();
  const bool code_is_known = code_ > static_cast<uint32_t>(absl::StatusCode::kOk) &&
                             code_ <= static_cast<uint32_t>(absl::StatusCode::kUnauthenticated);
  if (!code_is_known || text_bytes_ > kTextBytes) {
    return absl::InternalError("the job failed, and its failure record in shared memory is damaged");
  }
  return absl::Status(static_cast<absl::StatusCode>(code_), absl::string_view(text_, text_bytes_));
}

absl::Status Validate(const ShmGeometry& geometry) {
  if (geometry.size < 1 || geometry.size > kShmMaxRanks) {
    return absl::InvalidArgumentError(
        absl::StrCat("shared memory is for 1 to ", kShmMaxRanks, " ranks, not ", geometry.size));
  }
  if (geometry.slot_bytes == 0 || geometry.slot_bytes % kShmPageBytes != 0 || geometry.slot_bytes > kMaxSlotBytes) {
    return absl::InvalidArgumentError(absl::StrCat("a slot of shared memory has a multiple of ", kShmPageBytes,
                                                   " bytes, at most ", kMaxSlotBytes, ", not ", geometry.slot_bytes));
  }
  if (geometry.slot_count < kShmMinSlotCount || geometry.slot_count > kMaxSlotCount) {
    return absl::InvalidArgumentError(absl::StrCat("a rank has ", kShmMinSlotCount, " to ", kMaxSlotCount,
                                                   " slots of shared memory, not ", geometry.slot_count));
  }
  return absl::OkStatus();
}

size_t ShmView::TotalBytes(const ShmGeometry& geometry) {
  return DataOffset(geometry.size) + static_cast<size_t>(geometry.size) * geometry.RingBytes();
}

ShmRankBlock& ShmView::rank(RankId rank) const { return reinterpret_cast<ShmRankBlock*>(base_ + RanksOffset())[rank]; }

ShmRingHeader& ShmView::Ring(int index) const {
  return *reinterpret_cast<ShmRingHeader*>(base_ + RingsOffset(geometry_.size) + index * kRingStride);
}

absl::Span<FlightRecorder> ShmView::FlightRecorders() const {
  return absl::MakeSpan(reinterpret_cast<FlightRecorder*>(base_ + FlightsOffset(geometry_.size)),
                        static_cast<size_t>(geometry_.size));
}

ShmFlatLine* ShmView::FlatLines(RankId rank) const {
  return reinterpret_cast<ShmFlatLine*>(base_ + FlatOffset(geometry_.size)) +
         static_cast<size_t>(rank) * kFlatLinesOfRank;
}

char* ShmView::Data(RankId rank, uint64_t position) const {
  const size_t ring_bytes = geometry_.RingBytes();
  return base_ + DataOffset(geometry_.size) + static_cast<size_t>(rank) * ring_bytes + position % ring_bytes;
}

}  // namespace ronda
