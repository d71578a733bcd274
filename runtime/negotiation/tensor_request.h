// SPDX-License-Identifier: Apache-2.0

// A rank's request: one tensor and an operation on it. Its fields are listed once, in RONDA_REQUEST_FIELDS. The cache
// key, the fusion key, the texts of mismatches and the codec are made from that list.
#ifndef RONDA_RUNTIME_NEGOTIATION_TENSOR_REQUEST_H_
#define RONDA_RUNTIME_NEGOTIATION_TENSOR_REQUEST_H_

#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/hash/hash.h"
#include "absl/strings/match.h"
#include "absl/strings/string_view.h"
#include "runtime/base/types.h"

namespace ronda {

// A TensorKey that owns nothing, for lookups that should not copy the name.
struct TensorKeyView {
  ProcessSetId process_set = kGlobalProcessSet;
  absl::string_view name;

  friend bool operator==(const TensorKeyView& a, const TensorKeyView& b) {
    return a.process_set == b.process_set && a.name == b.name;
  }
  template <typename H>
  friend H AbslHashValue(H h, const TensorKeyView& key) {
    return H::combine(std::move(h), key.process_set, key.name);
  }
};

// Identifies a tensor in flight: the same name may be in flight in several process sets at once.
struct TensorKey {
  ProcessSetId process_set = kGlobalProcessSet;
  std::string name;

  TensorKey() = default;
  TensorKey(ProcessSetId set, std::string tensor) : process_set(set), name(std::move(tensor)) {}
  explicit TensorKey(TensorKeyView view) : process_set(view.process_set), name(view.name) {}

  operator TensorKeyView() const { return {process_set, name}; }  // NOLINT(google-explicit-constructor): lookups

  friend bool operator==(const TensorKey&, const TensorKey&) = default;
  friend auto operator<=>(const TensorKey&, const TensorKey&) = default;
  template <typename H>
  friend H AbslHashValue(H h, const TensorKey& key) {
    return AbslHashValue(std::move(h), TensorKeyView(key));
  }
};

struct TensorKeyHash {
  using is_transparent = void;
  size_t operator()(const TensorKeyView& key) const { return absl::Hash<TensorKeyView>()(key); }
};

struct TensorKeyEqual {
  using is_transparent = void;
  bool operator()(const TensorKeyView& a, const TensorKeyView& b) const { return a == b; }
};

// Can also be searched by TensorKeyView.
template <typename V>
using TensorKeyMap = absl::flat_hash_map<TensorKey, V, TensorKeyHash, TensorKeyEqual>;

// The name of every join.
inline constexpr absl::string_view kJoinName = "ronda/join";

// The names of tensors that the caller has not named begin with this.
inline constexpr absl::string_view kUnnamedPrefix = "ronda/unnamed/";

// The names of receives in order of arrival begin with this.
inline constexpr absl::string_view kReceivePrefix = "ronda/receive/";

// The names of messages. A channel goes from one rank to another with a tag. The name of its n-th message is the
// channel's name, a slash, and n modulo kMessageNumbers. So kMessageNumbers messages of a channel may be in flight. A
// receive that takes messages in the order of arrival has another name: ReceiveName(), a slash and a number.
inline constexpr uint64_t kMessageNumbers = 64;
std::string ChannelName(RankId from, RankId to, absl::string_view tag);
std::string ReceiveName(RankId to, absl::string_view tag);

// The tag and the number in the name of a message or of a receive.
struct MessageNameParts {
  absl::string_view tag;
  uint64_t number = 0;
};
MessageNameParts PartsOfMessageName(absl::string_view name);

// One tensor that a rank is ready to operate on. Ranks have their numbers in the job, not in the process set.
struct TensorRequest {
  std::string name;  // with the process set, identifies the requests that belong together
  ProcessSetId process_set = kGlobalProcessSet;
  OpType op = OpType::kAllreduce;
  // The function that the caller has called. The operation is all or a part of it. Ranks that call different functions
  // disagree.
  enum class Function : uint8_t { kOperation, kBroadcastObject, kAllgatherObject, kSparseAllreduce };
  Function function = Function::kOperation;
  DType dtype = DType::kFloat32;
  Memory memory = Memory::kHost;  // where the buffers are, on every rank; an operation without a tensor: kHost
  Shape shape;
  Reduction reduction = Reduction::kSum;
  WireFormat wire = WireFormat::kNone;
  double prescale = 1.0;
  double postscale = 1.0;
  enum class Overflow : uint8_t { kIgnored, kDetected } overflow = Overflow::kIgnored;
  RankId root = 0;      // of operations with one (OperationTraits::root). In a join's response: the last rank to join
  RankId receiver = 0;  // send/recv

  // The group of the tensor. A group runs completely or not at all. Empty: this tensor is in no group.
  std::string group;
  int group_size = 0;

  // A join: how averages count the ranks that have joined.
  enum class Absent : uint8_t { kNotCounted, kCountedAsZeros } absent = Absent::kNotCounted;

  std::vector<RankId> members;  // OperationTraits::adds_process_set; ascending
  ProcessSetId subject = 0;     // kRemoveProcessSet

  std::optional<WaitLimits> limits;  // nullopt: the job's. Ranks may differ; the shortest applies

  // Not empty: the rank refuses to take part, and this text says why. The rank still sends this request in place of its
  // own, so that the other ranks do not wait for it. The operation fails on all of them with this text. It is not known
  // which operation the rank would have called, so `op` is kBarrier or kSendRecv.
  std::string refusal;

  TensorKeyView key() const { return {process_set, name}; }

  friend bool operator==(const TensorRequest&, const TensorRequest&) = default;
};

// How a field is used, besides the cache key and the codec, which contain all fields.
inline constexpr unsigned kAgreed = 1;  // if ranks differ in it, the tensor fails, and the text has the field's word
inline constexpr unsigned kFused = 2;   // tensors that differ in it never share a collective

// The fields of TensorRequest except its name, in the order in which a mismatch is looked for. Each row has the field,
// its name in proto/ronda/v1/negotiation.proto, the word for it in messages, and its uses. SCALAR, LIST and MESSAGE are
// the field's form in the proto. The list is a macro because protobuf's accessors can only be found by name.
#define RONDA_REQUEST_FIELDS(SCALAR, LIST, MESSAGE)                         \
  SCALAR(function, function, "function", kAgreed | kFused)                  \
  SCALAR(op, op, "operation", kAgreed | kFused)                             \
  SCALAR(dtype, dtype, "dtype", kAgreed | kFused)                           \
  SCALAR(memory, memory, "memory", kAgreed | kFused)                        \
  LIST(shape, shape, "shape", kAgreed)                                      \
  SCALAR(root, root, "root", kAgreed)                                       \
  SCALAR(receiver, receiver, "receiver", kAgreed)                           \
  SCALAR(reduction, reduction, "reduce op", kAgreed | kFused)               \
  SCALAR(wire, wire, "compression", kAgreed | kFused)                       \
  SCALAR(prescale, prescale, "prescale", kAgreed | kFused)                  \
  SCALAR(postscale, postscale, "postscale", kAgreed | kFused)               \
  SCALAR(overflow, detect_overflow, "overflow detection", kAgreed | kFused) \
  SCALAR(group, group, "group", kAgreed)                                    \
  SCALAR(group_size, group_size, "group size", kAgreed)                     \
  SCALAR(absent, absent_as_zeros, "joined ranks", kAgreed)                  \
  LIST(members, members, "members", kAgreed)                                \
  SCALAR(subject, subject, "process set", kAgreed)                          \
  SCALAR(process_set, process_set, "process set of the operation", kFused)  \
  MESSAGE(limits, limits, "wait limits", kFused)                            \
  SCALAR(refusal, refusal, "refusal", 0)

// Does not compile if the list lacks a field.
inline void CheckEveryFieldIsListed(const TensorRequest& request) {
#define RONDA_FIELD(field, ...) , field
  [[maybe_unused]] const auto& [name RONDA_REQUEST_FIELDS(RONDA_FIELD, RONDA_FIELD, RONDA_FIELD)] = request;
#undef RONDA_FIELD
}

// Whether two requests with the same name are equal except for the shape.
inline bool SameButShape(const TensorRequest& a, const TensorRequest& b) {
#define RONDA_FIELD(field, ...) &&(std::is_same_v<decltype(a.field), Shape> || a.field == b.field)
  return a.name == b.name RONDA_REQUEST_FIELDS(RONDA_FIELD, RONDA_FIELD, RONDA_FIELD);
#undef RONDA_FIELD
}

// Whether two tensors whose operations fuse can travel as one collective.
inline bool SameKind(const TensorRequest& a, const TensorRequest& b) {
#define RONDA_FIELD(field, proto_field, word, uses) &&(((uses)&kFused) == 0 || a.field == b.field)
  return true RONDA_REQUEST_FIELDS(RONDA_FIELD, RONDA_FIELD, RONDA_FIELD);
#undef RONDA_FIELD
}

// Whether the operation can be part of a schedule. If an operation has its own limits, a late rank fails only that
// operation; in a schedule the late rank would fail the job.
inline bool CanBeScheduled(const TensorRequest& request) { return TraitsOf(request.op).schedulable && !request.limits; }

// Whether the caller has given the tensor no name. Such a tensor meets the tensors of other ranks by the order of the
// calls.
inline bool IsUnnamed(const TensorRequest& request) { return absl::StartsWith(request.name, kUnnamedPrefix); }

// Whether the request receives the first message that arrives with its tag and from its sender, and that no earlier
// receive takes. Other receives name the message.
inline bool IsOrderedReceive(const TensorRequest& request) {
  return request.op == OpType::kSendRecv && absl::StartsWith(request.name, kReceivePrefix);
}

// Whether the received message may come from any rank. Such a request has the receiver as its sender.
inline bool IsFromAnyRank(const TensorRequest& request) {
  return request.root == request.receiver && IsOrderedReceive(request);
}

// Two requests of a rank have equal signatures if DescribeMismatch() would find no difference except their names;
// otherwise they differ, as far as 64 bits allow. Signatures of different processes cannot be compared.
uint64_t SignatureOf(const TensorRequest& request);

// REQUIRES: the element count fits in memory (the codec and the client have checked this).
inline size_t TensorBytes(const TensorRequest& request) {
  return static_cast<size_t>(ElementCount(request.shape)) * SizeOf(request.dtype);
}

constexpr int kFunctionCount = static_cast<int>(TensorRequest::Function::kSparseAllreduce) + 1;

// "allreduce", "broadcast_object": the function that the caller has called.
const char* FunctionName(const TensorRequest& request);

// Names the subject of a request in errors: "tensor 'x'", "tensor 'x' of process set 3", "the barrier", "the join of
// process set 0".
std::string NameForErrors(const TensorRequest& request);

// As NameForErrors, with the operation, dtype and shape if any: "tensor 'x' (allreduce of float32 [3])".
std::string DescribeTensor(const TensorRequest& request);

// Returns why two requests with the same tensor name cannot be carried out together, for example "tensor 'x': rank 0
// (host h, pid 1) says shape [3], rank 1 (host h, pid 2) says shape [4]". For unnamed tensors the text always has
// operation, dtype and shape. Returns nullopt if they can be carried out together. `rank_a` and `rank_b` name the
// ranks.
// First dimensions that are each rank's own may differ (FirstDimension); so may fields without kAgreed.
std::optional<std::string> DescribeMismatch(const TensorRequest& a, absl::string_view rank_a, const TensorRequest& b,
                                            absl::string_view rank_b);

}  // namespace ronda

#endif  // RONDA_RUNTIME_NEGOTIATION_TENSOR_REQUEST_H_
