// SPDX-License-Identifier: Apache-2.0

// A rank's request for an operation on one tensor. The macro RONDA_REQUEST_FIELDS lists the request's fields. The cache
// key, the fusion key, the texts of mismatches and the codec are generated from this list.
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

// A TensorKey that does not own its name, for lookups that must not copy it.
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

// Identifies a tensor in flight. The process set is part of the key, because the same name may be in flight in several
// process sets at once.
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

// A hash table whose keys are TensorKeys, and which can also be searched by a TensorKeyView.
template <typename V>
using TensorKeyMap = absl::flat_hash_map<TensorKey, V, TensorKeyHash, TensorKeyEqual>;

// The name of every join operation.
inline constexpr absl::string_view kJoinName = "ronda/join";

// The prefix of the name of a tensor that the caller has not named.
inline constexpr absl::string_view kUnnamedPrefix = "ronda/unnamed/";

// The prefix of the name of a receive that takes messages in the order of arrival.
inline constexpr absl::string_view kReceivePrefix = "ronda/receive/";

// These functions build message names. A sender, a receiver and a tag identify a channel. The name of a channel's n-th
// message is the name of the channel, a slash, and n modulo kMessageNumbers. So kMessageNumbers messages of a channel
// may be in flight. The name of a receive that takes messages in the order of arrival is ReceiveName(), a slash and a
// number.
inline constexpr uint64_t kMessageNumbers = 64;
std::string ChannelName(RankId from, RankId to, absl::string_view tag);
std::string ReceiveName(RankId to, absl::string_view tag);

// The tag and the number in the name of a message or of a receive.
struct MessageNameParts {
  absl::string_view tag;
  uint64_t number = 0;
};
MessageNameParts PartsOfMessageName(absl::string_view name);

// One tensor that is ready for an operation on a rank. Ranks are numbered as in the job, not as in the process set.
struct TensorRequest {
  std::string name;  // with the process set, identifies the requests that belong together
  ProcessSetId process_set = kGlobalProcessSet;
  OpType op = OpType::kAllreduce;
  // The function that the caller has called, which consists of one or more operations. If ranks call different
  // functions, the request fails.
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

  // The group of the tensor. Either all tensors of a group run, or none of them. The name is empty if this tensor is in
  // no group.
  std::string group;
  int group_size = 0;

  // For a join: how an average counts the ranks that have joined.
  enum class Absent : uint8_t { kNotCounted, kCountedAsZeros } absent = Absent::kNotCounted;

  std::vector<RankId> members;  // OperationTraits::adds_process_set; ascending
  ProcessSetId subject = 0;     // kRemoveProcessSet

  std::optional<WaitLimits> limits;  // nullopt: the job's. Ranks may differ; the shortest applies

  // If not empty, this rank refuses to take part, and the text says why. The rank sends the refusal instead of its
  // request, so that the other ranks need not wait. The operation then fails on all ranks with this text. Ronda does
  // not know which operation the rank would have called, so `op` is kBarrier or kSendRecv.
  std::string refusal;

  TensorKeyView key() const { return {process_set, name}; }

  friend bool operator==(const TensorRequest&, const TensorRequest&) = default;
};

// Flags for the uses of a field. Besides these uses, all fields are in the cache key and in the codec.
inline constexpr unsigned kAgreed = 1;  // if ranks differ in it, the tensor fails, and the text has the field's name
inline constexpr unsigned kFused = 2;   // tensors that differ in it never share a collective

// The fields of TensorRequest, except the name, in the order in which DescribeMismatch compares them. Each row has a
// field, its name in proto/ronda/v1/negotiation.proto, its name in error texts, and its uses. SCALAR, LIST and MESSAGE
// are the form of the field in the proto. The list is a macro, because protobuf accessors are named after their fields.
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

// Makes the build fail if the list lacks a field.
inline void CheckEveryFieldIsListed(const TensorRequest& request) {
#define RONDA_FIELD(field, ...) , field
  [[maybe_unused]] const auto& [name RONDA_REQUEST_FIELDS(RONDA_FIELD, RONDA_FIELD, RONDA_FIELD)] = request;
#undef RONDA_FIELD
}

// Returns whether two requests with the same name differ at most in their shapes.
inline bool SameButShape(const TensorRequest& a, const TensorRequest& b) {
#define RONDA_FIELD(field, ...) &&(std::is_same_v<decltype(a.field), Shape> || a.field == b.field)
  return a.name == b.name RONDA_REQUEST_FIELDS(RONDA_FIELD, RONDA_FIELD, RONDA_FIELD);
#undef RONDA_FIELD
}

// Returns whether one collective can carry out both tensors, provided that their operations can be fused.
inline bool SameKind(const TensorRequest& a, const TensorRequest& b) {
#define RONDA_FIELD(field, proto_field, word, uses) &&(((uses)&kFused) == 0 || a.field == b.field)
  return true RONDA_REQUEST_FIELDS(RONDA_FIELD, RONDA_FIELD, RONDA_FIELD);
#undef RONDA_FIELD
}

// Returns whether the operation can be part of a schedule. An operation with limits of its own cannot: a late rank must
// fail only this operation, but in a schedule it would fail the job.
inline bool CanBeScheduled(const TensorRequest& request) { return TraitsOf(request.op).schedulable && !request.limits; }

// Returns whether the caller has not named the tensor. Unnamed tensors of different ranks are matched by the order of
// the calls.
inline bool IsUnnamed(const TensorRequest& request) { return absl::StartsWith(request.name, kUnnamedPrefix); }

// Returns whether the request is a receive in the order of arrival, which takes the first message from its sender and
// with its tag that no earlier receive takes. Every other receive contains the name of its message.
inline bool IsOrderedReceive(const TensorRequest& request) {
  return request.op == OpType::kSendRecv && absl::StartsWith(request.name, kReceivePrefix);
}

// Returns whether the receive may take a message from any rank. The request of such a receive also names the receiver
// as the sender.
inline bool IsFromAnyRank(const TensorRequest& request) {
  return request.root == request.receiver && IsOrderedReceive(request);
}

// Returns a hash of the fields that DescribeMismatch() compares. Two requests of one rank have equal signatures if
// DescribeMismatch() would find no difference between them apart from the names. Otherwise the signatures differ,
// unless two 64-bit hashes collide. Signatures of different processes cannot be compared.
uint64_t SignatureOf(const TensorRequest& request);

// Returns the product of the dimensions that are not zero, in bytes. Returns nullopt if a dimension is negative, or if
// the product exceeds 64 bits. Ronda accepts a shape, from a program or in a message, if it returns a number: all
// products of the shape's dimensions then fit, wherever a zero is.
std::optional<int64_t> ExtentInBytes(const Shape& shape, DType dtype);

// Returns the bytes of the tensor. REQUIRES: the tensor fits into memory (the codec and the client have checked this).
inline size_t TensorBytes(const TensorRequest& request) {
  return static_cast<size_t>(ElementCount(request.shape)) * SizeOf(request.dtype);
}

constexpr int kFunctionCount = static_cast<int>(TensorRequest::Function::kSparseAllreduce) + 1;

// Returns the name of the function that the caller has called, for example "allreduce" or "broadcast_object".
const char* FunctionName(const TensorRequest& request);

// Returns how errors refer to the request, for example "tensor 'x'", "tensor 'x' of process set 3", "the barrier" or
// "the join of process set 0".
std::string NameForErrors(const TensorRequest& request);

// Returns NameForErrors with the operation, dtype and shape, if the request has them. An example is "tensor 'x'
// (allreduce of float32 [3])".
std::string DescribeTensor(const TensorRequest& request);

// Returns why two requests for the same tensor name do not match, such as "tensor 'x': rank 0 (host h, pid 1) says
// shape [3], rank 1 (host h, pid 2) says shape [4]". For unnamed tensors the text always contains operation, dtype and
// shape. Returns nullopt if the requests can be carried out together. `rank_a` and `rank_b` are the names of the ranks
// in the text. The first dimensions may differ if FirstDimension allows it, and so may fields without kAgreed.
std::optional<std::string> DescribeMismatch(const TensorRequest& a, absl::string_view rank_a, const TensorRequest& b,
                                            absl::string_view rank_b);

}  // namespace ronda

#endif  // RONDA_RUNTIME_NEGOTIATION_TENSOR_REQUEST_H_
