#include "runtime/negotiation/describe.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace ronda {
namespace {

std::string OfSet(const TensorRequest& request) {
  return request.process_set == kGlobalProcessSet ? "" : absl::StrCat(" of process set ", request.process_set);
}

// Large sets by their ends: texts stay one line.
std::string Ranks(const std::vector<RankId>& ranks) {
  constexpr size_t kNamed = 8;
  if (ranks.size() <= kNamed) return absl::StrJoin(ranks, ", ");
  return absl::StrCat(absl::StrJoin(ranks.begin(), ranks.begin() + kNamed - 1, ", "), ", ..., ", ranks.back());
}

}  // namespace

std::string NameForErrors(const TensorRequest& request) {
  switch (request.op) {
    case OpType::kBarrier:
      return absl::StrCat("the barrier", OfSet(request));
    case OpType::kJoin:
      return absl::StrCat("the join of process set ", request.process_set);
    case OpType::kAddProcessSet:
      return absl::StrCat("the process set of ranks ", Ranks(request.members));
    case OpType::kRemoveProcessSet:
      return absl::StrCat("the removal of process set ", request.subject);
    default:
      return absl::StrCat("tensor '", request.name, "'", OfSet(request));
  }
}

std::string DescribeTensor(const TensorRequest& request) {
  if (request.op == OpType::kBarrier || request.op == OpType::kJoin || request.op == OpType::kAddProcessSet ||
      request.op == OpType::kRemoveProcessSet) {
    return NameForErrors(request);
  }
  return absl::StrCat(NameForErrors(request), " (", Name(request.op), " of ", Name(request.dtype), " ",
                      ToString(request.shape), ")");
}

}  // namespace ronda
