#include "client/arguments.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "client/utf8.h"
#include "runtime/base/status_macros.h"

namespace ronda {
namespace {

// Far above the size of any struct of ours: a larger struct_size was never written by a caller who set it.
constexpr size_t kMaxStructSize = 4096;

// The number that the caller stored in `value`. Reading an enum that holds none of its enumerators would be undefined.
template <typename Enum>
int RawValue(const Enum& value) {
  static_assert(sizeof(Enum) == sizeof(int));
  int raw = 0;
  std::memcpy(&raw, &value, sizeof(raw));
  return raw;
}

// Copies the caller's struct, which may come from another version of ronda.h. A newer one is longer: what we do not
// know must be zero, that is, not asked for.
template <typename T>
absl::StatusOr<T> CopySized(const T* from, absl::string_view type, absl::string_view init_macro) {
  if (from == nullptr) return absl::InvalidArgumentError(absl::StrCat(type, " is NULL: pass a pointer to one"));
  const size_t size = from->struct_size;
  if (size < sizeof(T) || size > kMaxStructSize) {
    return absl::InvalidArgumentError(absl::StrCat(type, ".struct_size is ", size, ", expected ", sizeof(T),
                                                   ": begin with ", init_macro, " or set it to sizeof(", type, ")"));
  }
  const char* bytes = reinterpret_cast<const char*>(from);
  if (std::any_of(bytes + sizeof(T), bytes + size, [](char byte) { return byte != 0; })) {
    return absl::InvalidArgumentError(absl::StrCat(type, " has ", size, " bytes, this library knows ", sizeof(T),
                                                   " of them, and the rest is not zero: the program was built with a "
                                                   "newer ronda.h and needs the libronda.so that came with it"));
  }
  T copy;
  std::memcpy(&copy, from, sizeof(T));
  return copy;
}

absl::Status CheckName(absl::string_view operation, const char* name) {
  if (name == nullptr || *name == '\0') {
    return absl::InvalidArgumentError(absl::StrCat(operation, ": tensor.name is ", name == nullptr ? "NULL" : "empty",
                                                   ": give each tensor a name, the same on every rank"));
  }
  const size_t length = strnlen(name, RONDA_MAX_NAME_LENGTH + 1);
  if (length > RONDA_MAX_NAME_LENGTH) {
    return absl::InvalidArgumentError(absl::StrCat(operation, ": tensor.name '", absl::string_view(name, 40),
                                                   "...' is longer than ", RONDA_MAX_NAME_LENGTH, " bytes"));
  }
  if (!IsPrintableUtf8({name, length})) {
    return absl::InvalidArgumentError(
        absl::StrCat(operation, ": tensor.name is not UTF-8 text without control characters"));
  }
  return absl::OkStatus();
}

absl::Status CheckShape(absl::string_view what, const ronda_tensor& tensor) {
  if (tensor.ndim < 0 || tensor.ndim > RONDA_MAX_NDIM) {
    return absl::InvalidArgumentError(
        absl::StrCat(what, ": tensor.ndim is ", tensor.ndim, ", expected 0 to ", RONDA_MAX_NDIM));
  }
  if (tensor.ndim > 0 && tensor.shape == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat(what, ": tensor.shape is NULL, but tensor.ndim is ", tensor.ndim, ": pass that many dimensions"));
  }
  return absl::OkStatus();
}

// Also a shape with a zero among its dimensions must not overflow in the others: whoever multiplies them may meet
// the zero last.
absl::Status CheckExtent(absl::string_view what, const Shape& shape, DType dtype) {
  int64_t bytes = static_cast<int64_t>(SizeOf(dtype));
  for (size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat(what, ": dimension ", i, " is negative in shape ", ToString(shape)));
    }
    if (__builtin_mul_overflow(bytes, std::max<int64_t>(shape[i], 1), &bytes)) {
      return absl::InvalidArgumentError(absl::StrCat(what, ": shape ", ToString(shape), " of ", Name(dtype),
                                                     " has more bytes than 64 bits can count"));
    }
  }
  return absl::OkStatus();
}

// "allreduce 'conv1/weight'", with which all further messages begin.
std::string Describe(const Submission& submission) {
  return absl::StrCat(Name(submission.request.op), " '", submission.request.name, "'");
}

// The part that all operations share.
absl::StatusOr<Submission> FromTensor(OpType op, const ronda_tensor& tensor) {
  RONDA_RETURN_IF_ERROR(CheckName(Name(op), tensor.name));
  Submission submission{.request = {.name = tensor.name, .op = op}};
  const std::string what = Describe(submission);
  const int raw_dtype = RawValue(tensor.dtype);
  const std::optional<DType> dtype = DTypeFromInt(raw_dtype);
  if (!dtype) {
    return absl::InvalidArgumentError(
        absl::StrCat(what, ": tensor.dtype ", raw_dtype, " is not one of ronda_dtype, 0 to ", kDTypeCount - 1));
  }
  submission.request.dtype = *dtype;
  RONDA_RETURN_IF_ERROR(CheckShape(what, tensor));
  submission.request.shape.assign(tensor.shape, tensor.shape + tensor.ndim);
  RONDA_RETURN_IF_ERROR(CheckExtent(what, submission.request.shape, *dtype));
  return submission;
}

// A tensor without elements needs no buffer.
absl::Status CheckBuffer(const Submission& submission, const void* buffer, absl::string_view argument) {
  const int64_t count = ElementCount(submission.request.shape);
  if (buffer != nullptr || count == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(Describe(submission), ": ", argument, " is NULL, but shape ",
                                                 ToString(submission.request.shape), " has ", count,
                                                 count == 1 ? " element" : " elements"));
}

absl::Status CheckOverlap(const Submission& submission) {
  const auto input = reinterpret_cast<uintptr_t>(submission.input);
  const auto output = reinterpret_cast<uintptr_t>(submission.output);
  const uintptr_t bytes =
      static_cast<uintptr_t>(ElementCount(submission.request.shape)) * SizeOf(submission.request.dtype);
  const uintptr_t distance = input > output ? input - output : output - input;
  if (distance == 0 || distance >= bytes) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(Describe(submission), ": input and output overlap by ",
                                                 bytes - distance,
                                                 " bytes: pass the same pointer or disjoint buffers"));
}

absl::Status SetReduction(const ronda_allreduce_args& args, Submission* submission) {
  const int op = RawValue(args.op);
  const std::optional<Reduction> reduction = ReductionFromInt(op);
  if (!reduction) {
    return absl::InvalidArgumentError(
        absl::StrCat(Describe(*submission), ": op ", op, " is not one of ronda_reduce_op, 0 to ", kReductionCount - 1));
  }
  if (*reduction == Reduction::kAverage && submission->request.dtype == DType::kBool) {
    return absl::InvalidArgumentError(
        absl::StrCat(Describe(*submission),
                     ": op is RONDA_AVERAGE, which RONDA_BOOL does not have: use RONDA_SUM "
                     "(any), RONDA_PRODUCT (all), or another dtype"));
  }
  submission->request.reduction = *reduction;
  return absl::OkStatus();
}

absl::Status SetScale(const Submission& submission, absl::string_view argument, double value, double* scale) {
  if (!std::isfinite(value)) {
    return absl::InvalidArgumentError(
        absl::StrCat(Describe(submission), ": ", argument, " is ", value, ": it must be finite"));
  }
  *scale = value == 0 ? 1.0 : value;
  return absl::OkStatus();
}

absl::Status SetWire(const ronda_allreduce_args& args, Submission* submission) {
  const int compression = RawValue(args.compression);
  const std::optional<WireFormat> wire = WireFormatFromInt(compression);
  if (!wire) {
    return absl::InvalidArgumentError(absl::StrCat(Describe(*submission), ": compression ", compression,
                                                   " is not one of ronda_compression, 0 to ", kWireFormatCount - 1));
  }
  submission->request.wire = *wire;
  return absl::OkStatus();
}

// `value` of an option in `unit`s; 0 keeps *duration and a negative one is `negative`.
absl::Status SetDuration(absl::string_view option, double value, absl::Duration unit, absl::Duration negative,
                         absl::Duration* duration) {
  if (std::isnan(value)) return absl::InvalidArgumentError(absl::StrCat("ronda_options.", option, " is not a number"));
  if (value != 0) *duration = value < 0 ? negative : value * unit;
  return absl::OkStatus();
}

void SetSize(int64_t value, size_t* size) {
  if (value != 0) *size = value < 0 ? 0 : static_cast<size_t>(value);
}

}  // namespace

absl::StatusOr<Submission> ToSubmission(const ronda_allreduce_args* args) {
  RONDA_ASSIGN_OR_RETURN(const ronda_allreduce_args known,
                         CopySized(args, "ronda_allreduce_args", "RONDA_ALLREDUCE_ARGS_INIT"));
  RONDA_ASSIGN_OR_RETURN(Submission submission, FromTensor(OpType::kAllreduce, known.tensor));
  submission.input = known.input;
  submission.output = known.output;
  RONDA_RETURN_IF_ERROR(CheckBuffer(submission, known.input, "input"));
  RONDA_RETURN_IF_ERROR(CheckBuffer(submission, known.output, "output"));
  RONDA_RETURN_IF_ERROR(CheckOverlap(submission));
  RONDA_RETURN_IF_ERROR(SetReduction(known, &submission));
  RONDA_RETURN_IF_ERROR(SetWire(known, &submission));
  RONDA_RETURN_IF_ERROR(SetScale(submission, "prescale", known.prescale, &submission.request.prescale));
  RONDA_RETURN_IF_ERROR(SetScale(submission, "postscale", known.postscale, &submission.request.postscale));
  return submission;
}

absl::StatusOr<Submission> ToSubmission(const ronda_broadcast_args* args, int world_size) {
  RONDA_ASSIGN_OR_RETURN(const ronda_broadcast_args known,
                         CopySized(args, "ronda_broadcast_args", "RONDA_BROADCAST_ARGS_INIT"));
  RONDA_ASSIGN_OR_RETURN(Submission submission, FromTensor(OpType::kBroadcast, known.tensor));
  RONDA_RETURN_IF_ERROR(CheckBuffer(submission, known.data, "data"));
  if (known.root < 0 || known.root >= world_size) {
    return absl::InvalidArgumentError(absl::StrCat(Describe(submission), ": root is ", known.root,
                                                   ", but the ranks of this job are 0 to ", world_size - 1));
  }
  submission.output = known.data;
  submission.request.root = known.root;
  return submission;
}

absl::StatusOr<Submission> ToSubmission(const ronda_allgather_args* args) {
  RONDA_ASSIGN_OR_RETURN(const ronda_allgather_args known,
                         CopySized(args, "ronda_allgather_args", "RONDA_ALLGATHER_ARGS_INIT"));
  RONDA_ASSIGN_OR_RETURN(Submission submission, FromTensor(OpType::kAllgather, known.tensor));
  RONDA_RETURN_IF_ERROR(CheckBuffer(submission, known.input, "input"));
  if (submission.request.shape.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        Describe(submission), ": a scalar has no first dimension to concatenate along: pass it with shape [1]"));
  }
  submission.input = known.input;
  return submission;
}

absl::Status ApplyOptions(const ronda_options* options, Tunables* tunables) {
  if (options == nullptr) return absl::OkStatus();
  RONDA_ASSIGN_OR_RETURN(const ronda_options known, CopySized(options, "ronda_options", "RONDA_OPTIONS_INIT"));
  if (known.start_timeout_s < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("ronda_options.start_timeout_s is ", known.start_timeout_s, ": it must not be negative"));
  }
  const absl::Duration never = absl::InfiniteDuration();
  RONDA_RETURN_IF_ERROR(SetDuration("cycle_time_ms", known.cycle_time_ms, absl::Milliseconds(1), absl::ZeroDuration(),
                                    &tunables->cycle_time));
  RONDA_RETURN_IF_ERROR(
      SetDuration("stall_warning_s", known.stall_warning_s, absl::Seconds(1), never, &tunables->stall_warning));
  RONDA_RETURN_IF_ERROR(
      SetDuration("stall_deadline_s", known.stall_deadline_s, absl::Seconds(1), never, &tunables->stall_deadline));
  RONDA_RETURN_IF_ERROR(SetDuration("start_timeout_s", known.start_timeout_s, absl::Seconds(1), absl::ZeroDuration(),
                                    &tunables->start_timeout));
  SetSize(known.fusion_threshold, &tunables->fusion_threshold);
  SetSize(known.cache_capacity, &tunables->cache_capacity);
  return absl::OkStatus();
}

}  // namespace ronda
