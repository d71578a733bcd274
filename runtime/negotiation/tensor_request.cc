// SPDX-License-Identifier: Apache-2.0

#include "runtime/negotiation/tensor_request.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"

namespace ronda {
namespace {

std::string OfSet(const TensorRequest& request) {
  return request.process_set == kGlobalProcessSet ? "" : absl::StrCat(" of process set ", request.process_set);
}

// Returns the ranks as text. Long lists are shortened, so that an error stays on one line.
std::string Ranks(const std::vector<RankId>& ranks) {
  constexpr size_t kNamed = 8;
  if (ranks.size() <= kNamed) return absl::StrJoin(ranks, ", ");
  return absl::StrCat(absl::StrJoin(ranks.begin(), ranks.begin() + kNamed - 1, ", "), ", ..., ", ranks.back());
}

// Returns a text for the value of a field on one rank. In errors, it follows the name of the field.
template <typename T>
std::string ValueText(const T& value) {
  if constexpr (std::is_enum_v<T>) {
    return Name(value);
  } else {
    return absl::StrCat(value);
  }
}
std::string ValueText(Memory memory) { return memory == Memory::kHost ? "of the host" : "of a GPU"; }
std::string ValueText(TensorRequest::Overflow overflow) {
  return overflow == TensorRequest::Overflow::kDetected ? "on" : "off";
}
std::string ValueText(TensorRequest::Absent absent) {
  return absent == TensorRequest::Absent::kCountedAsZeros ? "count as zeros" : "do not count";
}
std::string ValueText(const std::string& name) { return name.empty() ? "none" : absl::StrCat("'", name, "'"); }
std::string ValueText(const Shape& shape) { return ToString(shape); }
std::string ValueText(const std::vector<RankId>& ranks) { return Ranks(ranks); }
std::string ValueText(const std::optional<WaitLimits>&) { return ""; }  // not compared
std::string ValueText(TensorRequest::Function) { return ""; }           // see FirstDifference

template <typename T>
bool SameValue(const T& a, const T& b) {
  return a == b;
}
bool SameValue(double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); }

bool SameShape(const TensorRequest& a, const TensorRequest& b) {
  if (TraitsOf(a.op).first_dimension == FirstDimension::kShared) return a.shape == b.shape;
  return a.shape.size() == b.shape.size() && std::equal(a.shape.begin() + 1, a.shape.end(), b.shape.begin() + 1);
}

// Returns the name of the first field in which `a` and `b` differ, and its value in `a`. For the value in `b`, swap the
// arguments.
std::optional<std::string> FirstDifference(const TensorRequest& a, const TensorRequest& b) {
  if (a.function != b.function || a.op != b.op) return absl::StrCat("operation ", FunctionName(a));
#define RONDA_FIELD(field, proto_field, word, uses)                                                \
  if (((uses)&kAgreed) != 0) {                                                                     \
    constexpr bool is_shape = std::is_same_v<decltype(a.field), Shape>;                            \
    constexpr bool is_root = absl::string_view(word) == "root";                                    \
    if (is_shape ? !SameShape(a, b) : !SameValue(a.field, b.field)) {                              \
      const char* const named = is_root && TraitsOf(a.op).has_root() ? TraitsOf(a.op).root : word; \
      return absl::StrCat(named, " ", ValueText(a.field));                                         \
    }                                                                                              \
  }
  RONDA_REQUEST_FIELDS(RONDA_FIELD, RONDA_FIELD, RONDA_FIELD)
#undef RONDA_FIELD
  return std::nullopt;
}

// Returns whether the request is for an object. Errors about an object do not mention a tensor, because the caller does
// not know of one.
bool IsOfObject(const TensorRequest& request) {
  return request.function == TensorRequest::Function::kBroadcastObject ||
         request.function == TensorRequest::Function::kAllgatherObject;
}

// Returns, for example, "allreduce of float32 [3]". For an operation without a tensor, returns only the name of the
// operation.
std::string Call(const TensorRequest& request) {
  if (!TraitsOf(request.op).has_tensor() || IsOfObject(request)) return FunctionName(request);
  return absl::StrCat(FunctionName(request), " of ", Name(request.dtype), " ", ToString(request.shape));
}

// For an unnamed tensor, returns the value of `a` in which `b` differs. The text also describes the tensor's type and
// shape, because the user cannot recognize an unnamed tensor otherwise.
std::string CallAndDifference(const TensorRequest& a, const TensorRequest& b, const std::string& difference) {
  const bool is_in_call =
      a.function != b.function || a.op != b.op || a.dtype != b.dtype || (a.memory == b.memory && !SameShape(a, b));
  return is_in_call ? Call(a) : absl::StrCat(Call(a), " with ", difference);
}

// Returns a hint about the shapes that would be right, if they are not obvious.
const char* Hint(const TensorRequest& a, const TensorRequest& b) {
  if (a.function != b.function || a.op != b.op || a.dtype != b.dtype || a.memory != b.memory || SameShape(a, b))
    return "";
  const bool is_shared = TraitsOf(a.op).first_dimension == FirstDimension::kShared;
  return is_shared ? "" : " (all dimensions but the first must be equal)";
}

}  // namespace

std::string ChannelName(RankId from, RankId to, absl::string_view tag) {
  return absl::StrCat("ronda/sendrecv/", from, "-", to, "/", tag);
}

std::string ReceiveName(RankId to, absl::string_view tag) { return absl::StrCat(kReceivePrefix, to, "/", tag); }

MessageNameParts PartsOfMessageName(absl::string_view name) {
  const size_t number = name.rfind('/');
  if (number == 0 || number == absl::string_view::npos) return {};
  const size_t tag = name.rfind('/', number - 1);
  if (tag == absl::string_view::npos) return {};
  MessageNameParts parts = {.tag = name.substr(tag + 1, number - tag - 1)};
  return absl::SimpleAtoi(name.substr(number + 1), &parts.number) ? parts : MessageNameParts();
}

const char* FunctionName(const TensorRequest& request) {
  switch (request.function) {
    case TensorRequest::Function::kOperation:
      break;
    case TensorRequest::Function::kBroadcastObject:
      return "broadcast_object";
    case TensorRequest::Function::kAllgatherObject:
      return "allgather_object";
    case TensorRequest::Function::kSparseAllreduce:
      return "sparse_allreduce";
  }
  return Name(request.op);
}

std::string NameForErrors(const TensorRequest& request) {
  if (IsOrderedReceive(request)) {
    const std::string sender = IsFromAnyRank(request) ? "any rank" : absl::StrCat("rank ", request.root);
    return absl::StrCat("the message from ", sender, " with tag ", PartsOfMessageName(request.name).tag,
                        OfSet(request));
  }
  switch (request.op) {
    case OpType::kBarrier:
      if (!request.refusal.empty()) return absl::StrCat("the unnamed tensor", OfSet(request));
      return absl::StrCat("the barrier", OfSet(request));
    case OpType::kJoin:
      return absl::StrCat("the join of process set ", request.process_set);
    case OpType::kAddProcessSet:
    case OpType::kCreateProcessSet:
      return absl::StrCat("the process set of ranks ", Ranks(request.members));
    case OpType::kRemoveProcessSet:
      return absl::StrCat("the removal of process set ", request.subject);
    default:
      if (IsUnnamed(request)) return absl::StrCat("the unnamed tensor", OfSet(request));
      return absl::StrCat("tensor '", request.name, "'", OfSet(request));
  }
}

std::string DescribeTensor(const TensorRequest& request) {
  if (!TraitsOf(request.op).has_tensor()) return NameForErrors(request);
  return absl::StrCat(NameForErrors(request), " (", Call(request), ")");
}

std::optional<int64_t> ExtentInBytes(const Shape& shape, DType dtype) {
  int64_t bytes = static_cast<int64_t>(SizeOf(dtype));
  for (int64_t dim : shape) {
    if (dim < 0 || __builtin_mul_overflow(bytes, std::max<int64_t>(dim, 1), &bytes)) return std::nullopt;
  }
  return bytes;
}

uint64_t SignatureOf(const TensorRequest& request) {
  size_t hash = 0;
  const bool own_rows = TraitsOf(request.op).first_dimension != FirstDimension::kShared && !request.shape.empty();
#define RONDA_FIELD(field, proto_field, word, uses)                           \
  if constexpr (((uses)&kAgreed) != 0) {                                      \
    if constexpr (std::is_same_v<decltype(request.field), Shape>) {           \
      const absl::Span<const int64_t> dims = request.shape;                   \
      hash = absl::HashOf(hash, dims.size(), dims.subspan(own_rows ? 1 : 0)); \
    } else {                                                                  \
      hash = absl::HashOf(hash, request.field);                               \
    }                                                                         \
  }
  RONDA_REQUEST_FIELDS(RONDA_FIELD, RONDA_FIELD, RONDA_FIELD)
#undef RONDA_FIELD
  return hash;
}

std::optional<std::string> DescribeMismatch(const TensorRequest& a, absl::string_view rank_a, const TensorRequest& b,
                                            absl::string_view rank_b) {
  const std::optional<std::string> difference = FirstDifference(a, b);
  if (!difference) return std::nullopt;
  if (IsUnnamed(a)) {
    return absl::StrCat("the unnamed tensor", OfSet(a), ": ", rank_a, " says ", CallAndDifference(a, b, *difference),
                        ", ", rank_b, " says ", CallAndDifference(b, a, *FirstDifference(b, a)), Hint(a, b));
  }
  return absl::StrCat("tensor '", a.name, "'", OfSet(a), ": ", rank_a, " says ", *difference, ", ", rank_b, " says ",
                      *FirstDifference(b, a), Hint(a, b));
}

}  // namespace ronda
