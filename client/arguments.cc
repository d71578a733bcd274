// SPDX-License-Identifier: Apache-2.0

#include "client/arguments.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "client/operation_lists.h"
#include "runtime/base/status_macros.h"

namespace ronda {
namespace {

// The UTF-8 bytes that may follow a lead byte. The character is `length` bytes long, including the lead byte. The
// second byte is in [low, high].
struct Sequence {
  size_t length;
  uint8_t low;
  uint8_t high;
};

// Returns the bytes that may follow `lead`. The length is 0 if no character begins with `lead`.
Sequence SequenceOf(uint8_t lead) {
  if (lead < 0x80) return {lead >= 0x20 && lead != 0x7f ? size_t{1} : size_t{0}, 0, 0};
  if (lead < 0xc2) return {0, 0, 0};  // a continuation byte, or an overlong form of ASCII
  if (lead < 0xe0) return {2, 0x80, 0xbf};
  if (lead == 0xe0) return {3, 0xa0, 0xbf};  // else overlong
  if (lead == 0xed) return {3, 0x80, 0x9f};  // else a surrogate
  if (lead < 0xf0) return {3, 0x80, 0xbf};
  if (lead == 0xf0) return {4, 0x90, 0xbf};  // else overlong
  if (lead < 0xf4) return {4, 0x80, 0xbf};
  if (lead == 0xf4) return {4, 0x80, 0x8f};  // else beyond U+10FFFF
  return {0, 0, 0};
}

// Returns the length of a prefix of `text` that is printable ASCII, as most names are. The length is a multiple of
// eight; more printable ASCII may follow.
size_t AsciiPrefix(absl::string_view text) {
  constexpr uint64_t kEach = 0x0101010101010101;  // times a byte: that byte in each of the eight positions
  constexpr uint64_t kHigh = 0x80 * kEach;
  size_t i = 0;
  for (; text.size() - i >= sizeof(uint64_t); i += sizeof(uint64_t)) {
    uint64_t bytes;
    std::memcpy(&bytes, text.data() + i, sizeof(bytes));
    // While no byte has its high bit set, no sum carries into the next byte. The high bit of a byte is set in
    // `too_high` if the character is at least 0x7f. It is clear in `high_enough` if the character is below 0x20.
    const uint64_t too_high = bytes + (0x80 - 0x7f) * kEach;
    const uint64_t high_enough = bytes + (0x80 - 0x20) * kEach;
    if (((bytes | too_high | ~high_enough) & kHigh) != 0) break;
  }
  return i;
}

}  // namespace

bool IsPrintableUtf8(absl::string_view text) {
  size_t i = AsciiPrefix(text);
  while (i < text.size()) {
    // After AsciiPrefix(), most of the bytes are still printable ASCII.
    if (text[i] >= 0x20 && text[i] < 0x7f) {
      ++i;
      continue;
    }
    const Sequence sequence = SequenceOf(static_cast<uint8_t>(text[i]));
    if (sequence.length == 0 || sequence.length > text.size() - i) return false;
    for (size_t k = 1; k < sequence.length; ++k) {
      const auto byte = static_cast<uint8_t>(text[i + k]);
      const uint8_t low = k == 1 ? sequence.low : 0x80;
      const uint8_t high = k == 1 ? sequence.high : 0xbf;
      if (byte < low || byte > high) return false;
    }
    i += sequence.length;
  }
  return true;
}

namespace {

#define RONDA_DTYPE_CHECK(enumerator, suffix, name, type, kind, infinity) \
  static_assert(static_cast<int>(DType::enumerator) == RONDA_##suffix);
RONDA_DTYPE_TABLE(RONDA_DTYPE_CHECK)
#undef RONDA_DTYPE_CHECK

// Prefix of the names that Ronda itself assigns, for instance to barriers.
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

// Resets all fields to their defaults, but keeps the submission's memory.
void Reset(Submission* submission) {
  static const Submission* const defaults = new Submission;
  *submission = *defaults;
}

// Sets *limit to `seconds`. As in the C ABI, 0 keeps *limit, and a negative number removes the limit.
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
  if (op != OpType::kSendRecv && tensor.name != nullptr) {
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

namespace {

absl::Status SetReductionOp(int op, Submission* submission) {
  const std::optional<Reduction> reduction = ReductionFromInt(op);
  if (!reduction) {
    return absl::InvalidArgumentError(
        absl::StrCat(Describe(*submission), ": op ", op, " is not one of ronda_reduce_op, 0 to ", kReductionCount - 1));
  }
  submission->request.reduction = *reduction;
  return absl::OkStatus();
}

// Returns `scale`, or 1 if `scale` is 0, which means that the caller has not set it.
double ScaleOr1(double scale) { return scale == 0 ? 1.0 : scale; }

absl::Status SetWire(int compression, Submission* submission) {
  const std::optional<WireFormat> wire = WireFormatFromInt(compression);
  if (!wire) {
    return absl::InvalidArgumentError(absl::StrCat(Describe(*submission), ": compression ", compression,
                                                   " is not one of ronda_compression, 0 to ", kWireFormatCount - 1));
  }
  submission->request.wire = *wire;
  return absl::OkStatus();
}

// Sets the fields that all operations have.
template <typename Args>
absl::Status FromArgs(OpType op, const Args& args, const Caller& caller, Submission* submission) {
  RONDA_RETURN_IF_ERROR(FromTensor(op, args.tensor, submission));
  return SetCall(args.call, caller, submission);
}

// Sets the fields that only reductions have.
template <typename Args>
absl::Status SetReduction(const Args& args, Submission* submission) {
  RONDA_RETURN_IF_ERROR(SetReductionOp(RawValue(args.op), submission));
  RONDA_RETURN_IF_ERROR(SetWire(RawValue(args.compression), submission));
  submission->request.prescale = ScaleOr1(args.prescale);
  submission->request.postscale = ScaleOr1(args.postscale);
  if (args.error_feedback != 0) submission->error_feedback = Submission::ErrorFeedback::kOn;
  if (args.detect_overflow != 0) submission->request.overflow = TensorRequest::Overflow::kDetected;
  return absl::OkStatus();
}

template <typename Args>
absl::Status SetSplits(const Args& args, Submission* submission) {
  if (args.split_count < 0 || (args.split_count > 0 && args.splits == nullptr)) {
    return absl::InvalidArgumentError(absl::StrCat(Describe(*submission), ": split_count is ", args.split_count,
                                                   ": pass that many numbers of rows in splits"));
  }
  submission->splits.assign(args.splits, args.splits + args.split_count);
  return absl::OkStatus();
}

absl::Status SetChannel(const Channel& channel, Submission* submission) {
  if (channel.tag < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(Describe(*submission), ": tag is ", channel.tag, ": it must not be negative"));
  }
  const bool is_from_any = channel.from == RONDA_ANY_SOURCE;
  submission->request.root = is_from_any ? channel.to : channel.from;
  submission->request.receiver = channel.to;
  const std::string tag = absl::StrCat(channel.tag);
  submission->request.name = is_from_any ? ReceiveName(channel.to, tag) : ChannelName(channel.from, channel.to, tag);
  return absl::OkStatus();
}

// Checks the buffers of a sparse allreduce, so that the error names the caller's arguments rather than the inputs of
// the underlying allgathers.
absl::Status CheckSparseBuffers(const ronda_sparse_allreduce_args& args, const TensorRequest& values) {
  const auto is_zero = [](int64_t dim) { return dim == 0; };
  // A scalar has no rows; the runtime rejects it later.
  const bool has_rows = !values.shape.empty() && !is_zero(values.shape.front());
  const bool has_elements = has_rows && std::none_of(values.shape.begin(), values.shape.end(), is_zero);
  const bool lacks_indices = has_rows && args.indices == nullptr;
  if (!lacks_indices && (!has_elements || args.values != nullptr)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("sparse_allreduce '", values.name,
                                                 "': ", lacks_indices ? "indices" : "values",
                                                 " is NULL, but the shape has rows: pass both arrays"));
}

// Returns the operation whose argument struct is ronda_NAME_args. A NAME that matches no operation does not compile.
constexpr OpType OpNamed(absl::string_view name) {
  if (name == "send" || name == "recv") return OpType::kSendRecv;
  const auto* traits = std::find_if(std::begin(kOperations), std::end(kOperations),
                                    [&](const OperationTraits& each) { return each.name == name; });
  return traits->op;
}

#define RONDA_OP_OF(operation, OPERATION) \
  constexpr OpType OpOf(const ronda_##operation##_args*) { return OpNamed(#operation); }
RONDA_TENSOR_OPERATIONS(RONDA_OP_OF)
#undef RONDA_OP_OF

// Returns which ranks may pass memory for their result. For an operation on rows, these are the ranks that receive
// rows.
constexpr Side OutputSide(const OperationTraits& traits) {
  if (!traits.by_rows) return traits.output;
  const bool gathers = traits.first_dimension == FirstDimension::kGathered;
  return gathers && traits.has_root() ? Side::kRoot : Side::kMembers;
}

// Sets the submission's fields from the arguments of a single-tensor operation. All argument structs use the same names
// for the same fields. A buffer that the operation does not use on this rank is ignored.
template <typename Args>
absl::Status Fill(const Args& args, const Caller& caller, Submission* submission) {
  constexpr OperationTraits kTraits = TraitsOf(OpOf(static_cast<const Args*>(nullptr)));
  RONDA_RETURN_IF_ERROR(FromArgs(kTraits.op, args, caller, submission));
  if constexpr (requires { args.root; }) submission->request.root = args.root;
  if constexpr (requires { args.to; }) {
    RONDA_RETURN_IF_ERROR(SetChannel({.from = caller.rank, .to = args.to, .tag = args.tag}, submission));
  }
  if constexpr (requires { args.from; }) {
    RONDA_RETURN_IF_ERROR(SetChannel({.from = args.from, .to = caller.rank, .tag = args.tag}, submission));
  }
  const auto is_on = [&](Side side) { return side != Side::kRoot || submission->request.root == caller.rank; };
  if constexpr (requires { args.data; }) submission->output = args.data;
  if constexpr (requires { args.input; }) {
    if (is_on(kTraits.input)) submission->input = args.input;
  }
  if constexpr (requires { args.output; }) {
    if (is_on(OutputSide(kTraits))) submission->output = args.output;
  }
  if constexpr (requires { args.output_bytes; }) {
    if (is_on(OutputSide(kTraits))) submission->output_bytes = args.output_bytes;
  }
  if constexpr (requires { args.splits; }) {
    if (is_on(kTraits.splits)) RONDA_RETURN_IF_ERROR(SetSplits(args, submission));
  }
  if constexpr (kTraits.reduces) RONDA_RETURN_IF_ERROR(SetReduction(args, submission));
  return absl::OkStatus();
}

absl::Status Fill(const ronda_object_args& args, const Caller& caller, Submission* submission) {
  if (args.name != nullptr) RONDA_RETURN_IF_ERROR(CheckName("object", "name", args.name));
  *submission = {.request = {.name = args.name != nullptr ? args.name : "",
                             .op = OpType::kAllgather,
                             .dtype = DType::kUint8,
                             .shape = {static_cast<int64_t>(args.size)},
                             .root = args.root},
                 .input = args.data};
  if (args.size > static_cast<size_t>(INT64_MAX)) {
    return absl::InvalidArgumentError(
        absl::StrCat("object '", args.name, "': size is ", args.size, ", more bytes than there can be"));
  }
  RONDA_RETURN_IF_ERROR(SetCall(args.call, caller, submission));
  if (submission->request.memory == Memory::kHost) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("object '", args.name, "': call.memory is RONDA_MEMORY_CUDA, but objects are in host memory"));
}

// Returns `text` as a single line. Replaces characters that are not allowed in logs or in protobuf strings.
std::string OneLine(absl::string_view text) {
  size_t end = std::min(text.size(), size_t{RONDA_MAX_NAME_LENGTH});
  const auto is_inside_character = [&] { return end < text.size() && (text[end] & 0xc0) == 0x80; };
  while (end > 0 && is_inside_character()) --end;
  std::string line(text.substr(0, end));
  for (char& byte : line) {
    if (absl::ascii_iscntrl(static_cast<unsigned char>(byte))) byte = ' ';
  }
  if (IsPrintableUtf8(line)) return line;
  for (char& byte : line) {
    if (!absl::ascii_isprint(static_cast<unsigned char>(byte))) byte = '?';
  }
  return line;
}

// The argument structs, each of which becomes a single submission.
#define RONDA_SUBMISSION_ARGS(ROW) \
  RONDA_TENSOR_OPERATIONS(ROW)     \
  ROW(object, OBJECT)

#define RONDA_NAME_OF(operation, OPERATION) \
  constexpr absl::string_view NameOf(const ronda_##operation##_args*) { return "ronda_" #operation "_args"; }
RONDA_SUBMISSION_ARGS(RONDA_NAME_OF)
#undef RONDA_NAME_OF

// Returns the i-th of several structs that are `stride` bytes apart.
template <typename Args>
const Args* At(const Args* args, size_t stride, size_t i) {
  return reinterpret_cast<const Args*>(reinterpret_cast<const char*>(args) + i * stride);
}

}  // namespace

absl::StatusOr<Submission> RefusalSubmission(ronda_process_set set, const char* name, const Channel* channel,
                                             const char* message) {
  const bool has_words = message != nullptr && *message != '\0';
  Submission submission = {.request = {.process_set = set,
                                       .op = channel == nullptr ? OpType::kBarrier : OpType::kSendRecv,
                                       .refusal = has_words ? OneLine(message) : "it gives no reason"}};
  if (channel != nullptr) RONDA_RETURN_IF_ERROR(SetChannel(*channel, &submission));
  if (name != nullptr) {
    RONDA_RETURN_IF_ERROR(CheckName("refuse", "name", name));
    submission.request.name = name;
  }
  return submission;
}

template <typename Args>
absl::Status ToSubmission(const Args* args, const Caller& caller, Submission* submission) {
  RONDA_ASSIGN_OR_RETURN(const Args known, CopySized(args, NameOf(args)));
  return Fill(known, caller, submission);
}

#define RONDA_INSTANTIATE(operation, OPERATION) \
  template absl::Status ToSubmission(const ronda_##operation##_args*, const Caller&, Submission*);
RONDA_SUBMISSION_ARGS(RONDA_INSTANTIATE)
#undef RONDA_INSTANTIATE

absl::StatusOr<SparseSubmissions> ToSubmissions(const ronda_sparse_allreduce_args* args, const Caller& caller) {
  RONDA_ASSIGN_OR_RETURN(const auto known, CopySized(args, "ronda_sparse_allreduce_args"));
  Submission values;
  RONDA_RETURN_IF_ERROR(CheckName("sparse_allreduce", "tensor.name", known.tensor.name));
  RONDA_RETURN_IF_ERROR(FromArgs(OpType::kAllgather, known, caller, &values));
  const std::optional<Reduction> reduction = ReductionFromInt(RawValue(known.op));
  const bool averages = reduction == Reduction::kAverage && IsFloatingPoint(values.request.dtype);
  if (reduction != Reduction::kSum && !averages) {
    return absl::InvalidArgumentError(absl::StrCat("sparse_allreduce '", values.request.name, "': op is ",
                                                   RawValue(known.op),
                                                   ": it must be RONDA_SUM, or RONDA_AVERAGE of floating point"));
  }
  if (averages && values.request.memory != Memory::kHost) {
    return absl::InvalidArgumentError(
        absl::StrCat("sparse_allreduce '", values.request.name,
                     "': averages are of values in host memory: ask for RONDA_SUM, and divide on the device"));
  }
  RONDA_RETURN_IF_ERROR(CheckSparseBuffers(known, values.request));
  values.input = known.values;
  values.request.group = values.request.name;
  values.request.group_size = 2;
  values.request.function = TensorRequest::Function::kSparseAllreduce;
  values.request.reduction = *reduction;
  // A scalar has no rows; the runtime rejects it later.
  const int64_t rows = values.request.shape.empty() ? 0 : values.request.shape.front();
  Submission indices = values;
  indices.input = known.indices;
  absl::StrAppend(&indices.request.name, "/indices");
  indices.request.dtype = DType::kInt64;
  indices.request.shape = {rows};
  return SparseSubmissions{.indices = std::move(indices), .values = std::move(values)};
}

namespace {

// Converts `count` structs, all of which must have the first struct's struct_size.
template <typename Args>
absl::Status ToArray(const Args* args, size_t count, const char* group, const Caller& caller,
                     std::vector<Submission>* submissions) {
  RONDA_RETURN_IF_ERROR(CheckName("group", "the group's name", group));
  if ((args == nullptr && count > 0) || count > static_cast<size_t>(INT32_MAX)) {
    return absl::InvalidArgumentError(absl::StrCat("group '", group, "': count is ", count,
                                                   ", which is more than there are arguments: pass an array of them"));
  }
  const size_t stride = count == 0 ? 0 : args->struct_size;
  for (size_t i = 0; i < count; ++i) {
    const Args* const member = At(args, stride, i);
    if (stride % alignof(Args) != 0 || member->struct_size != stride) {
      return absl::InvalidArgumentError(absl::StrCat("group '", group, "': struct_size is ", member->struct_size,
                                                     " in member ", i, " and ", stride,
                                                     " in the first: set all to the size of the struct"));
    }
    if (i == submissions->size()) submissions->emplace_back();
    Submission& submission = (*submissions)[i];
    RONDA_RETURN_IF_ERROR(ToSubmission(member, caller, &submission));
    if (submission.request.name.empty()) {
      return absl::InvalidArgumentError(absl::StrCat("group '", group, "': tensor.name is NULL in member ", i,
                                                     ": the tensors of a group need names"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ToMembers(const ronda_allreduce_args* args, size_t count, const char* group, const Caller& caller,
                       std::vector<Submission>* submissions) {
  return ToArray(args, count, group, caller, submissions);
}

template <typename Args>
absl::StatusOr<absl::Span<const Submission>> ToGroup(const Args* args, size_t count, const char* group,
                                                     const Caller& caller, std::vector<Submission>* submissions) {
  RONDA_RETURN_IF_ERROR(ToArray(args, count, group, caller, submissions));
  const auto members = absl::MakeSpan(*submissions).first(count);
  for (Submission& member : members) {
    member.request.group = group;
    member.request.group_size = static_cast<int>(count);
  }
  return members;
}

#define RONDA_INSTANTIATE(operation, OPERATION)                                                                       \
  template absl::StatusOr<absl::Span<const Submission>> ToGroup(const ronda_##operation##_args*, size_t, const char*, \
                                                                const Caller&, std::vector<Submission>*);
RONDA_GROUPED_OPERATIONS(RONDA_INSTANTIATE)
#undef RONDA_INSTANTIATE

}  // namespace ronda
