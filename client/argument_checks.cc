#include "client/argument_checks.h"

#include <cmath>
#include <optional>

#include "absl/strings/match.h"
#include "absl/time/time.h"
#include "client/utf8.h"
#include "runtime/base/status_macros.h"

namespace ronda {
namespace {

// Names that begin so are given by Ronda itself: to barriers, for instance.
constexpr absl::string_view kReservedPrefix = "ronda/";

absl::Status CheckShape(const ronda_tensor& tensor, const Submission& submission) {
  if (tensor.ndim < 0 || tensor.ndim > RONDA_MAX_NDIM) {
    return absl::InvalidArgumentError(
        absl::StrCat(Describe(submission), ": tensor.ndim is ", tensor.ndim, ", expected 0 to ", RONDA_MAX_NDIM));
  }
  if (tensor.ndim > 0 && tensor.shape == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat(Describe(submission), ": tensor.shape is NULL, but tensor.ndim is ",
                                                   tensor.ndim, ": pass that many dimensions"));
  }
  return absl::OkStatus();
}

// All fields get their defaults, in the memory that the submission has.
void Reset(Submission* submission) {
  static const Submission* const defaults = new Submission;
  *submission = *defaults;
}

// `seconds` as the C ABI writes them: 0 leaves *limit, negative is never.
absl::Status SetLimit(const Submission& submission, absl::string_view argument, double seconds, absl::Duration* limit) {
  if (std::isnan(seconds)) {
    return absl::InvalidArgumentError(absl::StrCat(Describe(submission), ": call.", argument, " is not a number"));
  }
  if (seconds != 0) *limit = seconds < 0 ? absl::InfiniteDuration() : absl::Seconds(seconds);
  return absl::OkStatus();
}

absl::Status SetMemory(const ronda_call_options& call, Submission* submission) {
  const int raw_memory = RawValue(call.memory);
  const std::optional<Memory> memory = MemoryFromInt(raw_memory);
  if (!memory) {
    return absl::InvalidArgumentError(absl::StrCat(Describe(*submission), ": call.memory ", raw_memory,
                                                   " is not one of ronda_memory, 0 to ", kMemoryCount - 1));
  }
  if (*memory == Memory::kHost && call.stream != nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat(Describe(*submission),
                     ": there is a call.stream, but call.memory is RONDA_MEMORY_HOST: set it to "
                     "RONDA_MEMORY_CUDA if the buffers are a GPU's, or leave the stream out"));
  }
  submission->request.memory = *memory;
  submission->stream = call.stream;
  return absl::OkStatus();
}

}  // namespace

std::string Describe(const Submission& submission) {
  const std::string& name = submission.request.name;
  return name.empty() ? Name(submission.request.op) : absl::StrCat(Name(submission.request.op), " '", name, "'");
}

absl::Status CheckName(absl::string_view operation, absl::string_view what, const char* name) {
  if (name == nullptr || *name == '\0') {
    return absl::InvalidArgumentError(absl::StrCat(operation, ": ", what, " is ", name == nullptr ? "NULL" : "empty",
                                                   ": give each tensor a name, the same on every rank"));
  }
  const size_t length = strnlen(name, RONDA_MAX_NAME_LENGTH + 1);
  if (length > RONDA_MAX_NAME_LENGTH) {
    return absl::InvalidArgumentError(absl::StrCat(operation, ": ", what, " '", absl::string_view(name, 40),
                                                   "...' is longer than ", RONDA_MAX_NAME_LENGTH, " bytes"));
  }
  if (!IsPrintableUtf8({name, length})) {
    return absl::InvalidArgumentError(
        absl::StrCat(operation, ": ", what, " is not UTF-8 text without control characters"));
  }
  if (absl::StartsWith(name, kReservedPrefix)) {
    return absl::InvalidArgumentError(absl::StrCat(operation, ": ", what, " '", name, "' begins with '",
                                                   kReservedPrefix, "', as only names that Ronda itself gives do"));
  }
  return absl::OkStatus();
}

absl::Status FromTensor(OpType op, const ronda_tensor& tensor, Submission* submission) {
  Reset(submission);
  submission->request.op = op;
  if (op != OpType::kSendRecv) {
    RONDA_RETURN_IF_ERROR(CheckName(Name(op), "tensor.name", tensor.name));
    submission->request.name = tensor.name;
  }
  const int raw_dtype = RawValue(tensor.dtype);
  const std::optional<DType> dtype = DTypeFromInt(raw_dtype);
  if (!dtype) {
    return absl::InvalidArgumentError(absl::StrCat(Describe(*submission), ": tensor.dtype ", raw_dtype,
                                                   " is not one of ronda_dtype, 0 to ", kDTypeCount - 1));
  }
  submission->request.dtype = *dtype;
  RONDA_RETURN_IF_ERROR(CheckShape(tensor, *submission));
  submission->request.shape.assign(tensor.shape, tensor.shape + tensor.ndim);
  return absl::OkStatus();
}

absl::Status SetCall(const ronda_call_options& call, const Caller& caller, Submission* submission) {
  submission->request.process_set = call.process_set;
  RONDA_RETURN_IF_ERROR(SetMemory(call, submission));
  if (call.warning_s == 0 && call.deadline_s == 0) return absl::OkStatus();
  WaitLimits limits = caller.limits;
  RONDA_RETURN_IF_ERROR(SetLimit(*submission, "warning_s", call.warning_s, &limits.warning));
  RONDA_RETURN_IF_ERROR(SetLimit(*submission, "deadline_s", call.deadline_s, &limits.deadline));
  submission->request.limits = limits;
  return absl::OkStatus();
}

}  // namespace ronda
