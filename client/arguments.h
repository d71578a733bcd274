// SPDX-License-Identifier: Apache-2.0

// Converts the arguments of C callers into submissions. The checks here cover everything that neither C's types nor the
// runtime check: sizes of structs, enums, and pointers that this code follows. Runtime::Submit checks the meaning of a
// submission: shapes, buffers, ranks, process sets, splits. Pure: no function here reads tensor data or a runtime.
//
// Every error is INVALID_ARGUMENT, names the operation, the tensor and the argument, and gives advice.
#ifndef RONDA_CLIENT_ARGUMENTS_H_
#define RONDA_CLIENT_ARGUMENTS_H_

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
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

// Far above the size of any struct of this API. A larger struct_size means that the caller has not initialised it.
inline constexpr size_t kMaxStructSize = 4096;

// The number that the caller stored in `value`. Reading an enum that has none of its enumerators would be undefined.
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

// The sizes of T in all versions of ronda.h, in ascending order. The struct ronda_options has grown twice. The struct
// ronda_call_options grew while it was the last field of the operations' arguments; newer fields come after it.
template <typename T>
constexpr auto KnownSizes() {
  if constexpr (HasCallOptions<T>) {
    constexpr size_t kBeforeCall = offsetof(T, call);
    return std::array{kBeforeCall + offsetof(ronda_call_options, memory), kBeforeCall + sizeof(ronda_call_options),
                      sizeof(T)};
  } else if constexpr (std::same_as<T, ronda_options>) {
    // Both versions ended with padding. A new field there would read memory that an old program never wrote.
    static_assert(offsetof(T, master_address) >= offsetof(T, process_set_count) + sizeof(int));
    static_assert(offsetof(T, epoch) >= offsetof(T, local_size) + 2 * sizeof(int));
    return std::array{offsetof(T, master_address), offsetof(T, epoch), sizeof(T)};
  } else {
    return std::array{sizeof(T)};
  }
}

// Copies the caller's struct, which may come from another version of ronda.h. Fields that an older version lacks become
// zero. In a struct of a newer, longer version the unknown fields must be zero, which means that the caller does not
// use them. `type` is the struct's name.
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

// For instance "allreduce 'conv1/weight'". The messages about a tensor begin with it.
std::string Describe(const Submission& submission);

// Checks the name of a tensor or group. `what` is the argument's name for messages: "tensor.name".
absl::Status CheckName(absl::string_view operation, absl::string_view what, const char* name);

// Makes `*submission` a submission of `tensor`, and reuses the memory of its former content. The submission gets no
// name if it is a send or receive, whose callers give none, or if the tensor has none.
absl::Status FromTensor(OpType op, const ronda_tensor& tensor, Submission* submission);

// Sets the process set, the kind of memory, and limits if `call` has any.
absl::Status SetCall(const ronda_call_options& call, const Caller& caller, Submission* submission);

// Whether `text` is well-formed UTF-8 (Unicode 15, table 3-7) without ASCII control characters. protobuf accepts such
// text in a string field, and it fits on one line of a log.
bool IsPrintableUtf8(absl::string_view text);

// The facts that a send and its receive agree on.
struct Channel {
  int from;
  int to;
  int tag;
};

// The submission of a rank that cannot take part in an operation. If `channel` is given, the operation is the next
// message of that channel. Else, if `name` is given, it is the operation with this name. Else it is this rank's next
// operation without a name in the process set. The other ranks get the first RONDA_MAX_NAME_LENGTH bytes of `message`,
// which may be null, on one line.
absl::StatusOr<Submission> RefusalSubmission(ronda_process_set set, const char* name, const Channel* channel,
                                             const char* message);

// Args is the type of an operation's arguments: ronda_allreduce_args, ronda_send_args and so on. A null `args` is an
// error. The content of `*submission` is lost; its memory is reused.
//
// A send or a receive gets the name of the channel between the two ranks; the session numbers the tensors of the
// channel. The type ronda_object_args becomes an allgather of bytes with the caller's root.
template <typename Args>
absl::Status ToSubmission(const Args* args, const Caller& caller, Submission* submission);

// Allgathers of the same group. The request of the values contains the caller's reduction, so that the ranks agree on
// it.
struct SparseSubmissions {
  Submission indices;
  Submission values;
};
absl::StatusOr<SparseSubmissions> ToSubmissions(const ronda_sparse_allreduce_args* args, const Caller& caller);

// Makes a group of `count` structs; all have the size that the first one gives. The result is the first `count` entries
// of `*submissions`, which grows if necessary, and whose memory is reused. Args: of an operation with a function
// ronda_grouped_NAME_async().
// REQUIRES: count > 0.
template <typename Args>
absl::StatusOr<absl::Span<const Submission>> ToGroup(const Args* args, size_t count, const char* group,
                                                     const Caller& caller, std::vector<Submission>* submissions);

// As ToGroup(), without making a group: `*submissions` becomes the members, and may be longer. `group` is for messages.
absl::Status ToMembers(const ronda_allreduce_args* args, size_t count, const char* group, const Caller& caller,
                       std::vector<Submission>* submissions);

}  // namespace ronda

#endif  // RONDA_CLIENT_ARGUMENTS_H_
