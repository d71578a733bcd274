#include "client/arguments.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "runtime/base/status_macros.h"

namespace ronda {
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

// Zero is "not set".
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

// The part that all operations share.
template <typename Args>
absl::Status FromArgs(OpType op, const Args& args, const Caller& caller, Submission* submission) {
  RONDA_RETURN_IF_ERROR(FromTensor(op, args.tensor, submission));
  return SetCall(args.call, caller, submission);
}

// The part that all reductions share.
template <typename Args>
absl::Status FromReduction(OpType op, const Args& args, const Caller& caller, Submission* submission) {
  RONDA_RETURN_IF_ERROR(FromArgs(op, args, caller, submission));
  submission->input = args.input;
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

// Where the result goes, on a rank that has one.
template <typename Args>
void SetOutput(const Args& args, Submission* submission) {
  submission->output = args.output;
  submission->output_bytes = args.output_bytes;
}

// The facts that a send and its receive agree on.
struct Channel {
  int from;
  int to;
  int tag;
};

absl::Status SetChannel(const Channel& channel, Submission* submission) {
  if (channel.tag < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(Describe(*submission), ": tag is ", channel.tag, ": it must not be negative"));
  }
  submission->request.root = channel.from;
  submission->request.receiver = channel.to;
  submission->request.name = absl::StrCat("ronda/sendrecv/", channel.from, "-", channel.to, "/", channel.tag);
  return absl::OkStatus();
}

// Checks here, so that the message has the caller's words: the allgathers would speak of inputs.
absl::Status CheckSparseBuffers(const ronda_sparse_allreduce_args& args, const TensorRequest& values) {
  const auto is_zero = [](int64_t dim) { return dim == 0; };
  // A scalar has no rows; the runtime refuses it.
  const bool has_rows = !values.shape.empty() && !is_zero(values.shape.front());
  const bool has_elements = has_rows && std::none_of(values.shape.begin(), values.shape.end(), is_zero);
  const bool lacks_indices = has_rows && args.indices == nullptr;
  if (!lacks_indices && (!has_elements || args.values != nullptr)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("sparse_allreduce '", values.name,
                                                 "': ", lacks_indices ? "indices" : "values",
                                                 " is NULL, but the shape has rows: pass both arrays"));
}

// The fields of each operation's arguments. An operation has one of these functions, and a line in the table below.

absl::Status Fill(const ronda_allreduce_args& args, const Caller& caller, Submission* submission) {
  RONDA_RETURN_IF_ERROR(FromReduction(OpType::kAllreduce, args, caller, submission));
  submission->output = args.output;
  return absl::OkStatus();
}

absl::Status Fill(const ronda_reduce_args& args, const Caller& caller, Submission* submission) {
  RONDA_RETURN_IF_ERROR(FromReduction(OpType::kReduce, args, caller, submission));
  submission->request.root = args.root;
  if (args.root == caller.rank) submission->output = args.output;
  return absl::OkStatus();
}

absl::Status Fill(const ronda_reducescatter_args& args, const Caller& caller, Submission* submission) {
  RONDA_RETURN_IF_ERROR(FromReduction(OpType::kReduceScatter, args, caller, submission));
  SetOutput(args, submission);
  return absl::OkStatus();
}

absl::Status Fill(const ronda_broadcast_args& args, const Caller& caller, Submission* submission) {
  RONDA_RETURN_IF_ERROR(FromArgs(OpType::kBroadcast, args, caller, submission));
  submission->output = args.data;
  submission->request.root = args.root;
  return absl::OkStatus();
}

absl::Status Fill(const ronda_allgather_args& args, const Caller& caller, Submission* submission) {
  RONDA_RETURN_IF_ERROR(FromArgs(OpType::kAllgather, args, caller, submission));
  submission->input = args.input;
  SetOutput(args, submission);
  return absl::OkStatus();
}

absl::Status Fill(const ronda_gather_args& args, const Caller& caller, Submission* submission) {
  RONDA_RETURN_IF_ERROR(FromArgs(OpType::kGather, args, caller, submission));
  submission->input = args.input;
  submission->request.root = args.root;
  if (args.root == caller.rank) SetOutput(args, submission);
  return absl::OkStatus();
}

absl::Status Fill(const ronda_scatter_args& args, const Caller& caller, Submission* submission) {
  RONDA_RETURN_IF_ERROR(FromArgs(OpType::kScatter, args, caller, submission));
  submission->request.root = args.root;
  SetOutput(args, submission);
  if (args.root != caller.rank) return absl::OkStatus();
  submission->input = args.input;
  return SetSplits(args, submission);
}

absl::Status Fill(const ronda_alltoall_args& args, const Caller& caller, Submission* submission) {
  RONDA_RETURN_IF_ERROR(FromArgs(OpType::kAlltoall, args, caller, submission));
  submission->input = args.input;
  SetOutput(args, submission);
  return SetSplits(args, submission);
}

absl::Status Fill(const ronda_send_args& args, const Caller& caller, Submission* submission) {
  RONDA_RETURN_IF_ERROR(FromArgs(OpType::kSendRecv, args, caller, submission));
  RONDA_RETURN_IF_ERROR(SetChannel({.from = caller.rank, .to = args.to, .tag = args.tag}, submission));
  submission->input = args.input;
  return absl::OkStatus();
}

absl::Status Fill(const ronda_recv_args& args, const Caller& caller, Submission* submission) {
  RONDA_RETURN_IF_ERROR(FromArgs(OpType::kSendRecv, args, caller, submission));
  RONDA_RETURN_IF_ERROR(SetChannel({.from = args.from, .to = caller.rank, .tag = args.tag}, submission));
  submission->output = args.output;
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

// The structs that become one submission each.
#define RONDA_SUBMISSION_ARGS(ROW) \
  ROW(ronda_allreduce_args)        \
  ROW(ronda_reduce_args)           \
  ROW(ronda_reducescatter_args)    \
  ROW(ronda_broadcast_args)        \
  ROW(ronda_allgather_args)        \
  ROW(ronda_gather_args)           \
  ROW(ronda_scatter_args)          \
  ROW(ronda_alltoall_args)         \
  ROW(ronda_send_args)             \
  ROW(ronda_recv_args)             \
  ROW(ronda_object_args)

#define RONDA_NAME_OF(Args) \
  constexpr absl::string_view NameOf(const Args*) { return #Args; }
RONDA_SUBMISSION_ARGS(RONDA_NAME_OF)
#undef RONDA_NAME_OF

// The i-th of structs that lie `stride` bytes apart.
template <typename Args>
const Args* At(const Args* args, size_t stride, size_t i) {
  return reinterpret_cast<const Args*>(reinterpret_cast<const char*>(args) + i * stride);
}

}  // namespace

template <typename Args>
absl::Status ToSubmission(const Args* args, const Caller& caller, Submission* submission) {
  RONDA_ASSIGN_OR_RETURN(const Args known, CopySized(args, NameOf(args)));
  return Fill(known, caller, submission);
}

#define RONDA_INSTANTIATE(Args) template absl::Status ToSubmission(const Args*, const Caller&, Submission*);
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
  values.request.reduction = *reduction;
  // A scalar has no rows; the runtime refuses it.
  const int64_t rows = values.request.shape.empty() ? 0 : values.request.shape.front();
  Submission indices = values;
  indices.input = known.indices;
  absl::StrAppend(&indices.request.name, "/indices");
  indices.request.dtype = DType::kInt64;
  indices.request.shape = {rows};
  return SparseSubmissions{.indices = std::move(indices), .values = std::move(values)};
}

namespace {

// Converts `count` structs, each of the size that the first one tells.
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

template absl::StatusOr<absl::Span<const Submission>> ToGroup(const ronda_allreduce_args*, size_t, const char*,
                                                              const Caller&, std::vector<Submission>*);
template absl::StatusOr<absl::Span<const Submission>> ToGroup(const ronda_allgather_args*, size_t, const char*,
                                                              const Caller&, std::vector<Submission>*);
template absl::StatusOr<absl::Span<const Submission>> ToGroup(const ronda_reducescatter_args*, size_t, const char*,
                                                              const Caller&, std::vector<Submission>*);

absl::StatusOr<Submission> BarrierSubmission(ronda_process_set set, double timeout_s, const Caller& caller) {
  if (std::isnan(timeout_s)) return absl::InvalidArgumentError("monitored_barrier: timeout_s is not a number");
  Submission submission{.request = {.name = "ronda/barrier", .op = OpType::kBarrier}};
  ronda_call_options call = RONDA_CALL_OPTIONS_INIT;
  call.process_set = set;
  call.deadline_s = timeout_s;
  RONDA_RETURN_IF_ERROR(SetCall(call, caller, &submission));
  return submission;
}

absl::StatusOr<Submission> JoinSubmission(ronda_process_set set, const ronda_absent& absent) {
  const int raw = RawValue(absent);
  if (raw != RONDA_ABSENT_NOT_COUNTED && raw != RONDA_ABSENT_COUNTED_AS_ZEROS) {
    return absl::InvalidArgumentError(absl::StrCat("join: absent ", raw, " is not one of ronda_absent, 0 or 1"));
  }
  return Submission{.request = {.name = "ronda/join",
                                .process_set = set,
                                .op = OpType::kJoin,
                                .absent = static_cast<TensorRequest::Absent>(raw)}};
}

namespace {

absl::StatusOr<std::vector<RankId>> ToRanks(absl::string_view function, const int* ranks, int count) {
  if (ranks != nullptr && count > 0) return std::vector<RankId>(ranks, ranks + count);
  return absl::InvalidArgumentError(absl::StrCat(function, ": there are no ranks: list those of the set"));
}

}  // namespace

absl::StatusOr<Submission> AddProcessSetSubmission(const int* ranks, int count) {
  RONDA_ASSIGN_OR_RETURN(std::vector<RankId> members, ToRanks("ronda_add_process_set", ranks, count));
  return AddProcessSetSubmission(std::move(members));
}

Submission AddProcessSetSubmission(std::vector<RankId> ranks) {
  return {.request = {.name = "ronda/add_process_set", .op = OpType::kAddProcessSet, .members = std::move(ranks)}};
}

absl::StatusOr<Submission> CreateProcessSetSubmission(const int* ranks, int count, const char* tag) {
  RONDA_ASSIGN_OR_RETURN(std::vector<RankId> members, ToRanks("ronda_create_process_set", ranks, count));
  const bool has_tag = tag != nullptr && *tag != '\0';
  if (has_tag) RONDA_RETURN_IF_ERROR(CheckName("create_process_set", "tag", tag));
  std::string name = absl::StrCat("ronda/create_process_set/", absl::StrJoin(members, ","), "/", has_tag ? tag : "");
  return Submission{
      .request = {.name = std::move(name), .op = OpType::kCreateProcessSet, .members = std::move(members)}};
}

Submission RemoveProcessSetSubmission(ronda_process_set id, ProcessSetId by) {
  return {.request = {
              .name = "ronda/remove_process_set", .process_set = by, .op = OpType::kRemoveProcessSet, .subject = id}};
}

}  // namespace ronda
