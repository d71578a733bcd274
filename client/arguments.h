// SPDX-License-Identifier: Apache-2.0

// Converts the arguments of C callers into submissions. The checks here cover everything that neither C's types nor the
// runtime check: sizes of structs, enums, and pointers that this code follows. Runtime::Submit checks the meaning of a
// submission: shapes, buffers, ranks, process sets, splits. No function here reads the data of a tensor or the state of
// a runtime.
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

// Returns the number that the caller stored in `value`. If the number is none of the enumerators, reading it as an enum
// would be undefined behaviour.
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
// ronda_call_options grew when it was still the last field of the operations' arguments. Fields that the arguments have
// gained since then come after ronda_call_options.
template <typename T>
constexpr auto KnownSizes() {
  if constexpr (HasCallOptions<T>) {
    constexpr size_t kBeforeCall = offsetof(T, call);
    return std::array{kBeforeCall + offsetof(ronda_call_options, memory), kBeforeCall + sizeof(ronda_call_options),
                      sizeof(T)};
  } else if constexpr (std::same_as<T, ronda_options>) {
    // The two earlier versions of ronda_options ended with padding. If a new field lay in this padding, Ronda would
    // read memory that an old program never wrote.
    static_assert(offsetof(T, master_address) >= offsetof(T, process_set_count) + sizeof(int));
    static_assert(offsetof(T, epoch) >= offsetof(T, local_size) + 2 * sizeof(int));
    return std::array{offsetof(T, master_address), offsetof(T, epoch), sizeof(T)};
  } else {
    return std::array{sizeof(T)};
  }
}

// Copies the caller's struct, which may come from another version of ronda.h. Fields that an older version lacks become
// zero. If the caller's version is newer and its struct longer, the fields that this library does not know must be
// zero. Zero means that the caller does not use a field. `type` is the struct's name.
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

// Returns the text with which error messages about a tensor begin, such as "allreduce 'conv1/weight'".
std::string Describe(const Submission& submission);

// Checks the name of a tensor or group. `what` is the name of the argument in error messages, such as "tensor.name".
absl::Status CheckName(absl::string_view operation, absl::string_view what, const char* name);

// Makes `*submission` a submission of `tensor`, and reuses the memory that `*submission` already has. The submission
// gets no name if it is a send or a receive, or if the tensor has no name.
absl::Status FromTensor(OpType op, const ronda_tensor& tensor, Submission* submission);

// Sets the process set, the kind of memory, and limits if `call` has any.
absl::Status SetCall(const ronda_call_options& call, const Caller& caller, Submission* submission);

// Returns whether `text` is well-formed UTF-8 (Unicode 15, table 3-7) without ASCII control characters. Text for which
// the function returns true is valid in a string field of protobuf, and fits on one line of a log.
bool IsPrintableUtf8(absl::string_view text);

// The values that are equal in a send and in its receive.
struct Channel {
  int from;
  int to;
  int tag;
};

// Returns the submission of a rank that cannot take part in an operation. If `channel` is given, the operation is the
// next message of that channel. If only `name` is given, the operation has this name. If neither is given, the
// operation is this rank's next operation without a name in the process set. The other ranks get `message`, which may
// be null, on one line and cut to RONDA_MAX_NAME_LENGTH bytes.
absl::StatusOr<Submission> RefusalSubmission(ronda_process_set set, const char* name, const Channel* channel,
                                             const char* message);

// Converts the arguments of one operation. Args is the type of the arguments: ronda_allreduce_args, ronda_send_args and
// so on. A null `args` is an error. Overwrites the content of `*submission`, and reuses the memory of `*submission`.
//
// A send or a receive gets the name of the channel between the two ranks. The session adds the number of the message in
// this channel. The type ronda_object_args becomes an allgather of bytes with the caller's root.
template <typename Args>
absl::Status ToSubmission(const Args* args, const Caller& caller, Submission* submission);

// The two allgathers of a sparse allreduce, which form one group. The request of the values contains the caller's
// reduction, so that the runtime checks that all ranks use the same reduction.
struct SparseSubmissions {
  Submission indices;
  Submission values;
};
absl::StatusOr<SparseSubmissions> ToSubmissions(const ronda_sparse_allreduce_args* args, const Caller& caller);

// Makes a group of `count` structs, which must all have the struct_size of the first struct. The result is the first
// `count` entries of `*submissions`, which grows if necessary, and whose memory is reused. Args is the type of an
// operation's arguments that has a function ronda_grouped_NAME_async().
// REQUIRES: count > 0.
template <typename Args>
absl::StatusOr<absl::Span<const Submission>> ToGroup(const Args* args, size_t count, const char* group,
                                                     const Caller& caller, std::vector<Submission>* submissions);

// Converts `count` structs like ToGroup(), but makes no group. The result is the first `count` entries of
// `*submissions`. `group` is the name that error messages use for the whole list.
absl::Status ToMembers(const ronda_allreduce_args* args, size_t count, const char* group, const Caller& caller,
                       std::vector<Submission>* submissions);

}  // namespace ronda

#endif  // RONDA_CLIENT_ARGUMENTS_H_
