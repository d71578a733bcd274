#include "runtime/negotiation/mismatch.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "runtime/negotiation/operation_rules.h"

namespace ronda {
namespace {

bool ShapesAgree(const TensorRequest& a, const TensorRequest& b) {
  if (FirstDimensionOf(a.op) == FirstDimension::kShared) return a.shape == b.shape;
  return a.shape.size() == b.shape.size() && std::equal(a.shape.begin() + 1, a.shape.end(), b.shape.begin() + 1);
}

bool SameNumber(double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); }

std::string GroupOfTensor(const TensorRequest& request) {
  if (request.group.empty()) return "no group";
  return absl::StrCat("group '", request.group, "' of ", request.group_size, " tensors");
}

std::string MemoryOfTensor(const TensorRequest& request) {
  return request.memory == Memory::kHost ? "memory of the host" : "memory of a GPU";
}

std::string OverflowDetection(const TensorRequest& request) {
  return request.overflow == TensorRequest::Overflow::kDetected ? "on" : "off";
}

std::string AbsentRanks(const TensorRequest& request) {
  return request.absent == TensorRequest::Absent::kCountedAsZeros ? "count as zeros" : "do not count";
}

// What one side says of the first property in which the two differ; the other side is asked with a and b exchanged.
std::optional<std::string> FirstDifference(const TensorRequest& a, const TensorRequest& b) {
  if (a.op != b.op) return absl::StrCat("operation ", Name(a.op));
  if (a.dtype != b.dtype) return absl::StrCat("dtype ", Name(a.dtype));
  if (a.memory != b.memory) return MemoryOfTensor(a);
  if (!ShapesAgree(a, b)) return absl::StrCat("shape ", ToString(a.shape));
  if (a.root != b.root) return absl::StrCat(a.op == OpType::kSendRecv ? "sender " : "root ", a.root);
  if (a.receiver != b.receiver) return absl::StrCat("receiver ", a.receiver);
  if (a.reduction != b.reduction) return absl::StrCat("reduce op ", Name(a.reduction));
  if (a.wire != b.wire) return absl::StrCat("compression ", Name(a.wire));
  if (!SameNumber(a.prescale, b.prescale)) return absl::StrCat("prescale ", a.prescale);
  if (!SameNumber(a.postscale, b.postscale)) return absl::StrCat("postscale ", a.postscale);
  if (a.overflow != b.overflow) return absl::StrCat("overflow detection ", OverflowDetection(a));
  if (a.group != b.group || a.group_size != b.group_size) return GroupOfTensor(a);
  if (a.absent != b.absent) return absl::StrCat("joined ranks ", AbsentRanks(a));
  if (a.members != b.members) return absl::StrCat("members ", absl::StrJoin(a.members, ", "));
  if (a.subject != b.subject) return absl::StrCat("process set ", a.subject);
  return std::nullopt;
}

// Which shapes would do, where that is not obvious.
const char* Hint(const TensorRequest& a, const TensorRequest& b) {
  if (a.op != b.op || a.dtype != b.dtype || a.memory != b.memory || ShapesAgree(a, b)) return "";
  return FirstDimensionOf(a.op) == FirstDimension::kShared ? "" : " (all dimensions but the first must be equal)";
}

}  // namespace

std::optional<std::string> DescribeMismatch(const TensorRequest& a, absl::string_view who_a, const TensorRequest& b,
                                            absl::string_view who_b) {
  const std::optional<std::string> difference = FirstDifference(a, b);
  if (!difference) return std::nullopt;
  const std::string set = a.process_set == kGlobalProcessSet ? "" : absl::StrCat(" of process set ", a.process_set);
  return absl::StrCat("tensor '", a.name, "'", set, ": ", who_a, " says ", *difference, ", ", who_b, " says ",
                      *FirstDifference(b, a), Hint(a, b));
}

}  // namespace ronda
