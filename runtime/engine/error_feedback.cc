#include "runtime/engine/error_feedback.h"

#include <new>

#include "absl/strings/str_cat.h"

namespace ronda {

absl::StatusOr<float*> ErrorFeedback::Residual(TensorKeyView key, size_t count) {
  auto it = entries_.find(key);
  if (it == entries_.end()) it = entries_.try_emplace(TensorKey(key)).first;
  Entry& entry = it->second;
  if (entry.values == nullptr || entry.count != count) {
    entry.values.reset(new (std::nothrow) float[count]());
    if (entry.values == nullptr) {
      return absl::ResourceExhaustedError(absl::StrCat("no memory for the ", count * sizeof(float),
                                                       " bytes of error feedback of tensor '", key.name, "'"));
    }
    entry.count = count;
  }
  return entry.values.get();
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
