#include "runtime/negotiation/mismatch.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace ronda {
namespace {

bool ShapesAgree(const TensorRequest& a, const TensorRequest& b) {
  if (a.op != OpType::kAllgather) return a.shape == b.shape;
  return a.shape.size() == b.shape.size() && std::equal(a.shape.begin() + 1, a.shape.end(), b.shape.begin() + 1);
}

// What one side says of the first property in which the two differ; the other side is asked with a and b exchanged.
std::optional<std::string> FirstDifference(const TensorRequest& a, const TensorRequest& b) {
  if (a.op != b.op) return absl::StrCat("operation ", Name(a.op));
  if (a.dtype != b.dtype) return absl::StrCat("dtype ", Name(a.dtype));
  if (!ShapesAgree(a, b)) return absl::StrCat("shape ", ToString(a.shape));
  if (a.root != b.root) return absl::StrCat("root ", a.root);
  if (a.reduction != b.reduction) return absl::StrCat("reduce op ", Name(a.reduction));
  if (a.wire != b.wire) return absl::StrCat("compression ", Name(a.wire));
  if (a.prescale != b.prescale) return absl::StrCat("prescale ", a.prescale);
  if (a.postscale != b.postscale) return absl::StrCat("postscale ", a.postscale);
  return std::nullopt;
}

}  // namespace

std::optional<std::string> DescribeMismatch(const TensorRequest& a, absl::string_view who_a, const TensorRequest& b,
                                            absl::string_view who_b) {
  const std::optional<std::string> difference = FirstDifference(a, b);
  if (!difference) return std::nullopt;
  const char* hint = a.op == OpType::kAllgather && b.op == OpType::kAllgather && a.dtype == b.dtype
                         ? " (all dimensions but the first must be equal)"
                         : "";
  return absl::StrCat("tensor '", a.name, "': ", who_a, " says ", *difference, ", ", who_b, " says ",
                      *FirstDifference(b, a), hint);
}

}  // namespace ronda
