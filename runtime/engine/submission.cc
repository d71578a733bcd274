// SPDX-License-Identifier: Apache-2.0

#include "runtime/engine/submission.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <new>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "runtime/base/operation.h"
#include "runtime/base/status_macros.h"

namespace ronda {
namespace {

// The checks of one submission. Their order matters, because later checks rely on earlier ones.
class Check {
 public:
  Check(const Submission& submission, const Submitter& submitter)
      : submission_(submission),
        request_(submission.request),
        submitter_(submitter),
        traits_(TraitsOf(submission.request.op)) {}

  absl::Status Run() {
    if (request_.name.empty()) return absl::InvalidArgumentError("a tensor needs a name, the same on every rank");
    RONDA_RETURN_IF_ERROR(ProcessSet());
    RONDA_RETURN_IF_ERROR(Root());
    if (!request_.refusal.empty()) return absl::OkStatus();  // it has no tensor
    RONDA_RETURN_IF_ERROR(Extent());
    RONDA_RETURN_IF_ERROR(Buffers());
    RONDA_RETURN_IF_ERROR(Overlap());
    RONDA_RETURN_IF_ERROR(traits_.reduces ? Reduces() : DoesNotReduce());
    RONDA_RETURN_IF_ERROR(Splits());
    RONDA_RETURN_IF_ERROR(ProcessSetChange());
    return Limits();
  }

 private:
  template <typename... Parts>
  absl::Status Invalid(const Parts&... parts) const {
    // The error leaves out a name that Ronda has generated, because the caller does not know it.
    const bool is_callers = !absl::StartsWith(request_.name, "ronda/");
    const std::string tensor = is_callers ? absl::StrCat(" of tensor '", request_.name, "'") : "";
    return absl::InvalidArgumentError(absl::StrCat(Name(request_.op), tensor, ": ", parts...));
  }

  // Returns whether this rank is one of the ranks that `side` describes.
  bool IsOne(Side side) const {
    switch (side) {
      case Side::kNone:
        return false;
      case Side::kMembers:
        return true;
      case Side::kRoot:
        return submitter_.rank == request_.root && !IsOrderedReceive(request_);
      case Side::kReceiver:
        return submitter_.rank == request_.receiver;
    }
    return false;
  }

  absl::Status ProcessSet() {
    if (request_.process_set == kGlobalProcessSet) {
      set_ = &submitter_.process_sets->global();
      return absl::OkStatus();
    }
    const auto found = submitter_.process_sets->Find(request_.process_set);
    if (!found.ok()) return Invalid(found.status().message());
    kept_ = *found;
    set_ = kept_.get();
    if (set_->Contains(submitter_.rank)) return absl::OkStatus();
    return Invalid("rank ", submitter_.rank, " is not in process set ", request_.process_set, ", whose ranks are ",
                   absl::StrJoin(set_->ranks(), ", "), ": submit it on those only");
  }

  absl::Status InSet(absl::string_view role, RankId rank) const {
    if (set_->Contains(rank)) return absl::OkStatus();
    return Invalid(role, " ", rank, " is not in process set ", request_.process_set, ", whose ranks are ",
                   absl::StrJoin(set_->ranks(), ", "), ": name one of them");
  }

  absl::Status Root() const {
    if (!traits_.has_root()) return absl::OkStatus();
    RONDA_RETURN_IF_ERROR(InSet(traits_.root, request_.root));
    if (request_.op != OpType::kSendRecv) return absl::OkStatus();
    RONDA_RETURN_IF_ERROR(InSet("receiver", request_.receiver));
    if (IsFromAnyRank(request_) && IsOne(Side::kReceiver)) {
      return set_->size() > 1 ? absl::OkStatus() : Invalid("there is no other rank that could send: leave it out");
    }
    if (request_.root == request_.receiver) {
      return Invalid("rank ", request_.root, " is sender and receiver: copy the tensor instead");
    }
    if (IsOne(Side::kRoot) || IsOne(Side::kReceiver)) return absl::OkStatus();
    return Invalid("rank ", submitter_.rank, " is neither the sender, ", request_.root, ", nor the receiver, ",
                   request_.receiver, ": submit it on those two only");
  }

  absl::Status Extent() {
    if (traits_.by_rows && request_.shape.empty()) {
      return Invalid("a scalar has no first dimension to divide or join along: give it the shape [1]");
    }
    for (int64_t dim : request_.shape) {
      if (dim < 0) return Invalid("shape ", ToString(request_.shape), " has a negative dimension");
    }
    if (!ExtentInBytes(request_.shape, request_.dtype)) {
      return Invalid("shape ", ToString(request_.shape), " of ", Name(request_.dtype),
                     " has more bytes than 64 bits can count");
    }
    bytes_ = static_cast<int64_t>(TensorBytes(request_));
    return absl::OkStatus();
  }

  absl::Status Buffers() const {
    if (request_.memory != Memory::kHost && !traits_.has_tensor()) {
      return Invalid("it has no tensor that could be in the memory of a GPU: leave that out");
    }
    if (submission_.output == nullptr && submission_.output_bytes > 0) {
      return Invalid("output is null, but output_bytes is ", submission_.output_bytes,
                     ": pass that much memory, or leave both out");
    }
    if (bytes_ == 0) return absl::OkStatus();
    if (IsOne(traits_.input) && submission_.input == nullptr) {
      return Invalid("input is null, but shape ", ToString(request_.shape), " has elements");
    }
    if (IsOne(traits_.output) && submission_.output == nullptr) {
      return Invalid("output is null, but shape ", ToString(request_.shape), " has elements");
    }
    return absl::OkStatus();
  }

  absl::Status Overlap() const {
    if (traits_.by_rows) return OverlapOfRows();
    if (!IsOne(traits_.input) || !IsOne(traits_.output)) return absl::OkStatus();
    const auto input = reinterpret_cast<uintptr_t>(submission_.input);
    const auto output = reinterpret_cast<uintptr_t>(submission_.output);
    const uintptr_t distance = input > output ? input - output : output - input;
    if (distance == 0 || distance >= static_cast<uintptr_t>(bytes_)) return absl::OkStatus();
    return Invalid("input and output overlap by ", static_cast<uintptr_t>(bytes_) - distance,
                   " bytes: pass the same pointer or disjoint buffers");
  }

  // In an operation by rows, the output cannot be the input, because the two have different sizes.
  absl::Status OverlapOfRows() const {
    if (!IsOne(traits_.input) || bytes_ == 0 || submission_.output_bytes == 0) return absl::OkStatus();
    const auto input = reinterpret_cast<uintptr_t>(submission_.input);
    const auto output = reinterpret_cast<uintptr_t>(submission_.output);
    const bool is_disjoint = output >= input ? output - input >= static_cast<uintptr_t>(bytes_)
                                             : input - output >= static_cast<uintptr_t>(submission_.output_bytes);
    if (is_disjoint) return absl::OkStatus();
    return Invalid("input and output overlap: pass disjoint buffers");
  }

  absl::Status Reduces() const {
    const ReductionTraits& reduction = TraitsOf(request_.reduction);
    if (!Supports(request_.reduction, request_.dtype)) {
      return Invalid(reduction.name, " is not defined on ", Name(request_.dtype), ": ", reduction.instead);
    }
    RONDA_RETURN_IF_ERROR(Scales());
    if (request_.reduction == Reduction::kAdasum) RONDA_RETURN_IF_ERROR(Adasum());
    if (submission_.error_feedback == Submission::ErrorFeedback::kOn && submission_.unnamed_call > 0) {
      return Invalid("error feedback is kept by the tensor's name: give it one, or leave error feedback off");
    }
    if (submission_.error_feedback == Submission::ErrorFeedback::kOn && !reduction.adds) {
      return Invalid("error feedback makes up for rounding in sums and averages, not in ", reduction.name,
                     ": leave it off");
    }
    return absl::OkStatus();
  }

  // Elements of other types than float64 are scaled in float32, by one factor or by both at once. A larger factor would
  // become infinite there, and would turn zeros into NaN.
  absl::Status Scales() const {
    const double before = request_.prescale;
    const double after = request_.postscale;
    if (!std::isfinite(before) || !std::isfinite(after)) return Invalid("prescale and postscale must be finite");
    const bool in_float32 =
        IsFloatingPoint(request_.dtype) && (request_.dtype != DType::kFloat64 || request_.wire != WireFormat::kNone);
    const double largest = std::max({std::abs(before), std::abs(after), std::abs(before * after)});
    if (!in_float32 || largest <= std::numeric_limits<float>::max()) return absl::OkStatus();
    return Invalid("prescale ", before, ", postscale ", after,
                   " or their product is larger than float32 allows: send the tensor as float64 without a wire format, "
                   "or use smaller factors");
  }

  absl::Status Adasum() const {
    if (request_.op != OpType::kAllreduce) return Invalid("only an allreduce can be an Adasum");
    if (TraitsOf(request_.wire).encoding == WireFormatTraits::Encoding::kBlocks) {
      return Invalid("Adasum does not travel as ", Name(request_.wire), ": use fp16, bf16 or none");
    }
    return absl::OkStatus();
  }

  absl::Status DoesNotReduce() const {
    const char* option = nullptr;
    if (request_.wire != WireFormat::kNone) option = "a wire format";
    if (request_.overflow != TensorRequest::Overflow::kIgnored) option = "overflow detection";
    if (submission_.error_feedback != Submission::ErrorFeedback::kOff) option = "error feedback";
    if (option == nullptr) return absl::OkStatus();
    return Invalid(option, " is for allreduce, reduce and reducescatter: leave it off");
  }

  absl::Status Splits() const {
    const std::vector<int64_t>& splits = submission_.splits;
    const bool wanted = IsOne(traits_.splits);
    if (!wanted && !splits.empty()) return Invalid("splits are for alltoall, and for the root of a scatter");
    if (!wanted || (splits.empty() && request_.op == OpType::kScatter)) return absl::OkStatus();
    const int64_t rows = request_.shape.front();
    if (splits.empty()) {
      if (rows % set_->size() == 0) return absl::OkStatus();
      return Invalid("its ", rows, " rows cannot be split evenly among ", set_->size(), " ranks: pass splits");
    }
    if (splits.size() != static_cast<size_t>(set_->size())) {
      return Invalid("splits has ", splits.size(), " entries for ", set_->size(), " ranks: pass one for each");
    }
    int64_t left = rows;
    for (int64_t split : splits) {
      if (split < 0) return Invalid("splits has the negative entry ", split);
      if (split > left) return Invalid("splits has more rows than the tensor, which has ", rows);
      left -= split;
    }
    if (left > 0) return Invalid("splits leaves out ", left, " of ", rows, " rows: they must add up");
    return absl::OkStatus();
  }

  absl::Status ProcessSetChange() const {
    if (!traits_.changes_process_sets) return absl::OkStatus();
    const bool removes = request_.op == OpType::kRemoveProcessSet;
    const ProcessSetId by = removes ? submitter_.process_sets->RemoversOf(request_.subject) : kGlobalProcessSet;
    if (request_.process_set != by) return Invalid("the ranks of process set ", by, " do that together: name that set");
    return removes ? Removed() : Added();
  }

  absl::Status Added() const {
    const std::vector<RankId>& members = request_.members;
    if (members.empty()) return Invalid("a process set needs at least one rank");
    if (members.front() < 0 || members.back() >= submitter_.world_size ||
        std::adjacent_find(members.begin(), members.end(), std::greater_equal<>()) != members.end()) {
      return Invalid("members [", absl::StrJoin(members, ", "), "] should be ascending ranks of this job, 0 to ",
                     submitter_.world_size - 1, ", each once");
    }
    if (traits_.by_new_members && !std::binary_search(members.begin(), members.end(), submitter_.rank)) {
      return Invalid("rank ", submitter_.rank, " is not one of the members [", absl::StrJoin(members, ", "),
                     "]: call it on those only");
    }
    return absl::OkStatus();
  }

  absl::Status Removed() const {
    if (request_.subject == kGlobalProcessSet) return Invalid("process set 0 is the job itself and stays");
    const auto found = submitter_.process_sets->Find(request_.subject);
    return found.ok() ? absl::OkStatus() : Invalid(found.status().message());
  }

  absl::Status Limits() const {
    if (!request_.limits) return absl::OkStatus();
    if (request_.limits->warning > absl::ZeroDuration() && request_.limits->deadline > absl::ZeroDuration()) {
      return absl::OkStatus();
    }
    return Invalid("warning ", absl::FormatDuration(request_.limits->warning), " and deadline ",
                   absl::FormatDuration(request_.limits->deadline), " must be above zero");
  }

  const Submission& submission_;
  const TensorRequest& request_;
  const Submitter& submitter_;
  const OperationTraits& traits_;
  const Group* set_ = nullptr;         // once ProcessSet() has succeeded
  std::shared_ptr<const Group> kept_;  // keeps set_ alive if it may be removed meanwhile
  int64_t bytes_ = 0;                  // of the tensor, once Extent() has succeeded
};

bool InSameGroup(const TensorRequest& a, const TensorRequest& b) {
  return a.group == b.group && a.process_set == b.process_set;
}

// Returns how many of `submissions` are in the group of `request`.
int64_t MembersOfGroup(absl::Span<const Submission> submissions, const TensorRequest& request) {
  return std::count_if(submissions.begin(), submissions.end(),
                       [&](const Submission& other) { return InSameGroup(other.request, request); });
}

}  // namespace

absl::StatusOr<std::shared_ptr<const Group>> ProcessSets::Find(ProcessSetId id) const {
  if (id == kGlobalProcessSet) return global_;
  {
    MutexLock lock(&mu_);
    if (auto group = table_.Find(id)) return group;
    if (table_.Known(id)) {
      return absl::InvalidArgumentError(absl::StrCat("process set ", id, " was removed: use another, or 0 for all"));
    }
  }
  return absl::InvalidArgumentError(absl::StrCat("there is no process set ", id, ", only ", absl::StrJoin(Ids(), ", "),
                                                 ": add it on every rank first"));
}

ProcessSetId ProcessSets::RemoversOf(ProcessSetId id) const {
  MutexLock lock(&mu_);
  return table_.CreatedByMembers(id) ? id : kGlobalProcessSet;
}

std::vector<ProcessSetId> ProcessSets::Ids() const {
  MutexLock lock(&mu_);
  std::vector<ProcessSetId> ids;
  for (ProcessSetId id = 0; id < table_.next_id(); ++id) {
    if (table_.Find(id) != nullptr) ids.push_back(id);
  }
  return ids;
}

absl::Status ProcessSets::Apply(const Response& response) {
  MutexLock lock(&mu_);
  return table_.Apply(response);
}

absl::Status AboutTensor(const std::string& name, const absl::Status& status) {
  if (status.ok()) return status;
  try {
    return absl::Status(status.code(), absl::StrCat("tensor '", name, "': ", status.message()));
  } catch (const std::bad_alloc&) {
    return status;
  }
}

absl::Status AboutCall(const Submission& submission, const absl::Status& status) {
  if (submission.unnamed_call == 0) return status;
  return absl::Status(status.code(), absl::StrCat("unnamed call ", submission.unnamed_call,
                                                  ", counted alike on every rank: ", status.message()));
}

absl::Status CheckSubmission(const Submission& submission, const Submitter& submitter) {
  return CheckSubmissions({&submission, 1}, submitter);
}

absl::Status CheckSubmissions(absl::Span<const Submission> submissions, const Submitter& submitter) {
  for (const Submission& submission : submissions) RONDA_RETURN_IF_ERROR(Check(submission, submitter).Run());
  const TensorRequest* counted = nullptr;  // usually all are in one group
  int64_t present = 0;
  for (const Submission& submission : submissions) {
    const TensorRequest& request = submission.request;
    if (counted == nullptr || !InSameGroup(*counted, request)) {
      present = request.group.empty() ? 0 : MembersOfGroup(submissions, request);
      counted = &request;
    }
    if (present == request.group_size) continue;
    return absl::InvalidArgumentError(absl::StrCat("tensor '", request.name, "': group '", request.group,
                                                   "' is said to have ", request.group_size, " tensors, but ", present,
                                                   " are submitted: submit a group in one call"));
  }
  return absl::OkStatus();
}

}  // namespace ronda
