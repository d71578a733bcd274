#include "runtime/engine/error_feedback.h"

#include "runtime/base/status_macros.h"

namespace ronda {

absl::StatusOr<float*> ErrorFeedback::Residual(TensorKeyView key, size_t count) {
  auto it = entries_.find(key);
  if (it == entries_.end()) it = entries_.try_emplace(TensorKey(key)).first;
  Entry& entry = it->second;
  if (entry.values == nullptr || entry.count != count) {
    // First: what is gone may be what makes room.
    entry.values = ResultData();
    RONDA_ASSIGN_OR_RETURN(entry.values, allocate_(key.name, count * sizeof(float)));
    entry.count = count;
  }
  return reinterpret_cast<float*>(entry.values.get());
}

void ErrorFeedback::Drop(ProcessSetId process_set) {
  absl::erase_if(entries_, [&](const auto& entry) { return entry.first.process_set == process_set; });
}

bool IsLossy(WireFormat wire, DType dtype) {
  switch (wire) {
    case WireFormat::kNone:
      return false;
    case WireFormat::kFloat16:
    case WireFormat::kBfloat16:
      return dtype == DType::kFloat32 || dtype == DType::kFloat64;
    case WireFormat::kFp8E4M3:
    case WireFormat::kFp8E5M2:
      return IsFloatingPoint(dtype);
  }
  return false;
}

}  // namespace ronda
