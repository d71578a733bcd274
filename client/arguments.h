// SPDX-License-Identifier: Apache-2.0

// Converts the arguments of C callers into submissions. This code checks only what the C type system and the runtime do
// not check: struct sizes, enum values, and the pointers that this code dereferences. Runtime::Submit() validates the
// rest: shapes, buffers, ranks, process sets, splits. No function here reads tensor data or runtime state.
//
// Every error is INVALID_ARGUMENT, names the operation, the tensor and the argument, and gives advice.
#ifndef RONDA_CLIENT_ARGUMENTS_H_
#define RONDA_CLIENT_ARGUMENTS_H_

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <cstring>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "client/ronda.h"
#include "runtime/base/types.h"
#include "runtime/engine/submission.h"

namespace ronda {

// kMaxStructSize is far above the size of any struct of this API. A larger struct_size means that the caller has not
// initialised the field.
inline constexpr size_t kMaxStructSize = 4096;

// Returns the number that the caller stored in `value`. If that number matches no enumerator, reading `value` as an
// enum would be undefined behaviour.
template <typename Enum>
int RawValue(const Enum& value) {
  static_assert(sizeof(Enum) == sizeof(int));
  int raw = 0;
  std::memcpy(&raw, &value, sizeof(raw));
  return raw;
}

template <typename T>
concept HasCallOptions = requires(T args) {
  { args.call } -> std::same_as<ronda_call_options&>;
};

// The sizes of T in all versions of ronda.h, in ascending order. ronda_options has grown twice. ronda_call_options grew
// while it was still the last field of the argument structs. Newer fields of the argument structs come after it.
template <typename T>
constexpr auto KnownSizes() {
  if constexpr (HasCallOptions<T>) {
    constexpr size_t kBeforeCall = offsetof(T, call);
    return std::array{kBeforeCall + offsetof(ronda_call_options, memory), kBeforeCall + sizeof(ronda_call_options),
                      sizeof(T)};
  } else if constexpr (std::same_as<T, ronda_options>) {
    // Both earlier versions of ronda_options ended with padding. No new field may overlap this padding, because old
    // programs leave it uninitialised.
    static_assert(offsetof(T, master_address) >= offsetof(T, process_set_count) + sizeof(int));
    static_assert(offsetof(T, epoch) >= offsetof(T, local_size) + 2 * sizeof(int));
    return std::array{offsetof(T, master_address), offsetof(T, epoch), sizeof(T)};
  } else {
    return std::array{sizeof(T)};
  }
}

// Copies the caller's struct, which may come from another version of ronda.h. Fields that an older version lacks become
// zero. If the caller's struct is longer because its version is newer, the fields that this library does not know must
// be zero, which means that the caller does not use them. `type` is the struct's name.
template <typename T>
absl::StatusOr<T> CopySized(const T* from, absl::string_view type) {
  if (from == nullptr) return absl::InvalidArgumentError(absl::StrCat(type, " is NULL: pass a pointer to one"));
  const size_t size = from->struct_size;
  constexpr auto kSizes = KnownSizes<T>();
  const bool is_known = std::find(kSizes.begin(), kSizes.end(), size) != kSizes.end();
  if ((size < sizeof(T) && !is_known) || size > kMaxStructSize) {
    return absl::InvalidArgumentError(absl::StrCat(type, ".struct_size is ", size, ", expected ", sizeof(T),
                                                   ": begin with ", absl::AsciiStrToUpper(type),
                                                   "_INIT or set it to sizeof(", type, ")"));
  }
  const char* bytes = reinterpret_cast<const char*>(from);
  if (size > sizeof(T) && std::any_of(bytes + sizeof(T), bytes + size, [](char byte) { return byte != 0; })) {
    return absl::InvalidArgumentError(absl::StrCat(type, " has ", size, " bytes, this library knows ", sizeof(T),
                                                   " of them, and the rest is not zero: the program was built with a "
                                                   "newer ronda.h and needs the libronda.so that came with it"));
  }
  T copy = {};
  std::memcpy(&copy, from, std::min(size, sizeof(T)));
  return copy;
}

// The rank that submits.
struct Caller {
  RankId rank = 0;
  WaitLimits limits;  // the job's, as this rank knows them: for a call that sets only one of its two limits
};

// Returns the beginning of error messages about a tensor, such as "allreduce 'conv1/weight'".
std::string Describe(const Submission& submission);

// Checks the name of a tensor or group. `what` is the name of the argument in error messages, such as "tensor.name".
absl::Status CheckName(absl::string_view operation, absl::string_view what, const char* name);

// Overwrites `*submission` with a submission of `tensor`, reusing its memory. Sends, receives and unnamed tensors get
// no name here.
absl::Status FromTensor(OpType op, const ronda_tensor& tensor, Submission* submission);

// Sets the process set, the memory kind, the stream, and any limits from `call`.
absl::Status SetCall(const ronda_call_options& call, const Caller& caller, Submission* submission);

// Returns whether `text` is well-formed UTF-8 (Unicode 15, table 3-7) without ASCII control characters. Such text is a
// valid protobuf string, and fits on one line of a log.
bool IsPrintableUtf8(absl::string_view text);

// The values that match a send with its receive.
struct Channel {
  int from;
  int to;
  int tag;
};

// Returns the submission with which a rank refuses to take part in an operation. If `channel` is given, the operation
// is the next message of that channel. If only `name` is given, the operation has this name. If neither is given, the
// operation is this rank's next unnamed operation in the process set. The other ranks receive `message` (which may be
// null) as one line of at most RONDA_MAX_NAME_LENGTH bytes.
absl::StatusOr<Submission> RefusalSubmission(ronda_process_set set, const char* name, const Channel* channel,
                                             const char* message);

// Converts the arguments of one operation. Args is the type of the arguments: ronda_allreduce_args, ronda_send_args and
// so on. A null `args` is an error. Overwrites `*submission`, reusing its memory.
//
// A send or receive is named after the channel between its two ranks; the session appends the message's number within
// the channel. A ronda_object_args becomes an allgather of bytes with the caller's root.
template <typename Args>
absl::Status ToSubmission(const Args* args, const Caller& caller, Submission* submission);

// The two allgathers of a sparse allreduce, which form one group. The request for the values carries the caller's
// reduction operator, so the runtime can check that all ranks use the same one.
struct SparseSubmissions {
  Submission indices;
  Submission values;
};
absl::StatusOr<SparseSubmissions> ToSubmissions(const ronda_sparse_allreduce_args* args, const Caller& caller);

// Converts `count` structs, all of which must have the first struct's struct_size, into a tensor group. The result is
// the first `count` entries of `*submissions`, which grows as needed and whose memory is reused. Args must be the
// argument struct of an operation that has a function ronda_grouped_NAME_async().
// REQUIRES: count > 0.
template <typename Args>
absl::StatusOr<absl::Span<const Submission>> ToGroup(const Args* args, size_t count, const char* group,
                                                     const Caller& caller, std::vector<Submission>* submissions);

// Like ToGroup(), but does not form a tensor group. The result is the first `count` entries of `*submissions`. Error
// messages refer to the whole list as `group`.
absl::Status ToMembers(const ronda_allreduce_args* args, size_t count, const char* group, const Caller& caller,
                       std::vector<Submission>* submissions);

}  // namespace ronda

#endif  // RONDA_CLIENT_ARGUMENTS_H_
