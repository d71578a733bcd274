// SPDX-License-Identifier: Apache-2.0

#include "client/prepared_group.h"

#include <atomic>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "client/c_api_support.h"
#include "client/session.h"
#include "runtime/base/status_macros.h"
#include "runtime/engine/device/rank_device.h"
#include "runtime/engine/handle.h"
#include "runtime/engine/submission.h"

namespace ronda {
namespace {

// The most members of a batch, and the most bytes.
struct BatchLimits {
  size_t members;
  size_t first_bytes;  // of a group's first batch
  size_t bytes;
};

// In host memory this amount travels in a fraction of a millisecond, so little is lost if it is held back until the
// last member is ready. The costs of the batch's lock and wake-up are small per member.
constexpr BatchLimits kHostLimits = {.members = 32, .first_bytes = size_t{1} << 20, .bytes = size_t{1} << 20};

// On a GPU a batch costs launches and events, and a program announces gradients long before the device has computed
// them. So batches are as large as those of DistributedDataParallel. The first is small, so that communication begins
// early.
constexpr BatchLimits kDeviceLimits = {.members = 256, .first_bytes = size_t{1} << 20, .bytes = size_t{25} << 20};

// The first member of each batch. A batch has members in one kind of memory.
std::vector<size_t> Cut(absl::Span<const Submission> members) {
  std::vector<size_t> begins;
  size_t bytes = 0;
  for (size_t i = 0; i < members.size(); ++i) {
    const TensorRequest& request = members[i].request;
    const BatchLimits& limits = request.memory == Memory::kHost ? kHostLimits : kDeviceLimits;
    const size_t most = begins.size() <= 1 ? limits.first_bytes : limits.bytes;
    const size_t own = TensorBytes(request);
    const bool is_full = begins.empty() || request.memory != members[i - 1].request.memory ||
                         i - begins.back() == limits.members || bytes + own > most;
    if (is_full) {
      begins.push_back(i);
      bytes = 0;
    }
    bytes += own;
  }
  return begins;
}

}  // namespace

absl::StatusOr<std::unique_ptr<PreparedGroup>> PreparedGroup::Create(const std::shared_ptr<Session>& session,
                                                                     std::string name,
                                                                     std::vector<Submission> members) {
  RONDA_RETURN_IF_ERROR(session->runtime().Check(members));
  std::unordered_set<TensorKeyView, TensorKeyHash> keys;
  for (const Submission& member : members) {
    if (keys.insert(member.request.key()).second) continue;
    return absl::InvalidArgumentError(absl::StrCat("group '", name, "': two members are named '", member.request.name,
                                                   "': give the tensors different names"));
  }
  return std::unique_ptr<PreparedGroup>(new PreparedGroup(session, std::move(name), std::move(members)));
}

PreparedGroup::PreparedGroup(const std::shared_ptr<Session>& session, std::string name, std::vector<Submission> members)
    : session_(session),
      name_(std::move(name)),
      members_(std::move(members)),
      announced_(members_.size()),
      batch_of_(members_.size()) {
  const std::vector<size_t> begins = Cut(members_);
  batches_ = std::vector<Batch>(begins.size());
  for (size_t i = 0; i < begins.size(); ++i) {
    Batch& batch = batches_[i];
    batch.begin = begins[i];
    batch.end = i + 1 < begins.size() ? begins[i + 1] : members_.size();
    batch.missing.store(batch.end - batch.begin, std::memory_order_relaxed);
    batch.handles.reserve(batch.end - batch.begin);
    for (size_t member = batch.begin; member < batch.end; ++member) batch_of_[member] = i;
  }
}

PreparedGroup::~PreparedGroup() {
  for (const Batch& batch : batches_) {
    for (const std::shared_ptr<Handle>& handle : batch.handles) handle->Wait().IgnoreError();
  }
}

Outcome PreparedGroup::Invalid(absl::string_view what) const {
  return {RONDA_ERROR_INVALID_ARGUMENT, absl::StrCat("group '", name_, "': ", what)};
}

Outcome PreparedGroup::Announce(size_t index) {
  return AnnounceAfter(index, [](Submission&) {});
}

Outcome PreparedGroup::AnnounceAt(size_t index, void* data, std::optional<void*> stream) {
  if (index < members_.size()) {
    const TensorRequest& request = members_[index].request;
    const auto refused = [&](absl::string_view why) {
      return Invalid(absl::StrCat("member ", index, " '", request.name, "' is announced ", why));
    };
    if (data == nullptr && TensorBytes(request) > 0) return refused("without its data");
    if (stream.value_or(nullptr) != nullptr && request.memory == Memory::kHost) {
      return refused("with a stream, but it is in host memory: pass no stream");
    }
  }
  return AnnounceAfter(index, [data, stream](Submission& member) {
    member.input = member.output = data;
    if (stream.has_value()) member.stream = *stream;
  });
}

Outcome PreparedGroup::AnnounceAfter(size_t index, absl::FunctionRef<void(Submission&)> prepare) {
  if (index >= members_.size()) {
    return Invalid(absl::StrCat("there is no member ", index, " among ", members_.size()));
  }
  if (announced_[index].exchange(true, std::memory_order_relaxed)) {
    return Invalid(absl::StrCat("member ", index, " '", members_[index].request.name,
                                "' has been announced in this step: call ronda_group_wait() first"));
  }
  prepare(members_[index]);
  Batch& batch = batches_[batch_of_[index]];
  return batch.missing.fetch_sub(1, std::memory_order_acq_rel) > 1 ? Outcome() : Submit(batch);
}

Outcome PreparedGroup::SubmitAll(Batch& batch, absl::Span<const Submission> members) {
  const std::shared_ptr<Session> session = session_.lock();
  batch.status = session == nullptr
                     ? absl::CancelledError(
                           absl::StrCat("group '", name_, "' was prepared for a job that has ended: prepare it again"))
                     : session->runtime().SubmitChecked(members, &batch.handles);
  return Failure(batch.status, Answer::kSubmission);
}

Outcome PreparedGroup::SubmitAnnounced(Batch& batch) {
  if (batch.missing.load(std::memory_order_acquire) == 0) return {};
  std::vector<Submission> announced;
  for (size_t member = batch.begin; member < batch.end; ++member) {
    if (announced_[member].load(std::memory_order_relaxed)) announced.push_back(members_[member]);
  }
  return announced.empty() ? Outcome() : SubmitAll(batch, announced);
}

Outcome PreparedGroup::Detach(std::vector<std::shared_ptr<Handle>>* handles) {
  handles->assign(members_.size(), nullptr);
  Outcome first_error;
  for (Batch& batch : batches_) {
    Outcome submitted = SubmitAnnounced(batch);
    if (submitted.ok()) submitted = Failure(batch.status, Answer::kSubmission);
    if (first_error.ok()) first_error = std::move(submitted);
  }
  for (Batch& batch : batches_) {
    auto handle = batch.handles.begin();  // a batch whose submission failed has none
    for (size_t member = batch.begin; member < batch.end && handle != batch.handles.end(); ++member) {
      if (announced_[member].load(std::memory_order_relaxed)) (*handles)[member] = *handle++;
    }
    if (first_error.ok()) continue;
    for (const std::shared_ptr<Handle>& each : batch.handles) each->Wait().IgnoreError();
  }
  if (!first_error.ok()) handles->clear();
  for (Batch& batch : batches_) batch.status = absl::OkStatus();
  BeginStep();
  return first_error;
}

void PreparedGroup::BeginStep() {
  for (Batch& batch : batches_) {
    batch.handles.clear();
    batch.missing.store(batch.end - batch.begin, std::memory_order_relaxed);
  }
  for (std::atomic<bool>& announced : announced_) announced.store(false, std::memory_order_relaxed);
}

Outcome PreparedGroup::CheckComplete() const {
  for (const Batch& batch : batches_) {
    if (batch.missing.load(std::memory_order_acquire) == 0) continue;
    size_t member = batch.begin;
    while (announced_[member].load(std::memory_order_relaxed)) ++member;
    return Invalid(absl::StrCat("member ", member, " '", members_[member].request.name,
                                "' has not been announced in this step: call ronda_group_ready() for it first"));
  }
  return {};
}

Outcome PreparedGroup::EndStep(absl::FunctionRef<absl::Status(const Handle&)> wait) {
  Outcome first_error = CheckComplete();
  if (!first_error.ok()) return first_error;
  const auto note = [&](const absl::Status& status, Answer from) {
    if (first_error.ok() && !status.ok()) first_error = Failure(status, from);
  };
  for (Batch& batch : batches_) {
    note(std::exchange(batch.status, absl::OkStatus()), Answer::kSubmission);
    for (const std::shared_ptr<Handle>& handle : batch.handles) {
      const absl::Status status = wait(*handle);
      // An error of the waiting stream is not an error of the operation.
      note(status, absl::IsInvalidArgument(status) ? Answer::kSubmission : Answer::kCompletion);
    }
  }
  BeginStep();
  return first_error;
}

Outcome PreparedGroup::Wait() {
  bool found = false;
  Outcome outcome = EndStep([&](const Handle& handle) {
    absl::Status status = handle.Wait();
    found |= status.ok() && handle.result().FindOverflow() == OperationResult::Overflow::kFound;
    return status;
  });
  found_overflow_ = found;
  return outcome;
}

Outcome PreparedGroup::CheckEnded(absl::FunctionRef<bool(const Handle&)> has_ended, bool* ended) const {
  *ended = false;
  Outcome complete = CheckComplete();
  if (!complete.ok()) return complete;
  for (const Batch& batch : batches_) {
    for (const std::shared_ptr<Handle>& handle : batch.handles) {
      if (!has_ended(*handle)) return {};
    }
  }
  *ended = true;
  return {};
}

Outcome PreparedGroup::WaitUntil(absl::Duration deadline, bool* ended) {
  Outcome outcome = CheckEnded([deadline](const Handle& handle) { return handle.WaitUntil(deadline); }, ended);
  return *ended ? Wait() : outcome;
}

Outcome PreparedGroup::OrderBeforeUntil(void* stream, absl::Duration deadline, bool* ended) {
  Outcome outcome = CheckEnded([deadline](const Handle& handle) { return MayOrderBy(handle, deadline); }, ended);
  return *ended ? OrderBefore(stream) : outcome;
}

Outcome PreparedGroup::OrderBefore(void* stream) {
  found_overflow_ = false;
  WaitingStream waiting(stream);
  return EndStep([&waiting](const Handle& handle) {
    absl::Status status = OrderStream(handle, waiting);
    if (!status.ok()) handle.Wait().IgnoreError();  // nothing is in flight after an error
    return status;
  });
}

}  // namespace ronda
