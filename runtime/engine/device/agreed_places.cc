// SPDX-License-Identifier: Apache-2.0

#include "runtime/engine/device/agreed_places.h"

#include <cstdint>
#include <iterator>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/logging.h"
#include "runtime/base/status_macros.h"

namespace ronda {

BucketLayout AgreedPlaces::LayoutAt(const std::string& bucket, size_t offset) const {
  const auto agreed = offsets_.find(bucket);
  return agreed != offsets_.end() && agreed->second == offset ? BucketLayout::kAdjacent : BucketLayout::kMoved;
}

absl::StatusOr<BucketLayout> AgreedPlaces::Compare(Communicator& host, const CallInfo& info, const std::string& bucket,
                                                   size_t offset) {
  const auto own = static_cast<int64_t>(offset);
  int64_t bounds[] = {own, -own};  // the maxima are the largest offset, and minus the smallest one
  const Segment segment = {.input = bounds, .output = bounds, .count = std::size(bounds)};
  RONDA_RETURN_IF_ERROR(
      host.Reduce({.info = info, .segments = {&segment, 1}, .dtype = DType::kInt64, .op = ReduceOp::kMax}));
  if (bounds[0] != -bounds[1]) {
    offsets_.erase(bucket);
    if (host.rank() == 0 && !std::exchange(has_logged_, true)) {
      Log(LogLevel::kWarning, 0,
          absl::StrCat("tensors lie at different offsets in the ranks' memory for gradients, and are packed while they "
                       "do, first '",
                       bucket, "': allocate memory in the same order on all ranks"));
    }
    return BucketLayout::kAny;
  }
  offsets_[bucket] = offset;
  return BucketLayout::kAdjacent;
}

}  // namespace ronda
