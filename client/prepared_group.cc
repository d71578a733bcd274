#include "client/prepared_group.h"

#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/status_macros.h"

namespace ronda {
namespace {

// Where each batch begins.
std::vector<size_t> Cut(absl::Span<const Submission> members) {
  std::vector<size_t> begins;
  size_t bytes = 0;
  for (size_t i = 0; i < members.size(); ++i) {
    const size_t own = TensorBytes(members[i].request);
    const bool is_full =
        begins.empty() || i - begins.back() == PreparedGroup::kBatchMembers || bytes + own > PreparedGroup::kBatchBytes;
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
  absl::flat_hash_set<TensorKeyView> keys;
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

Outcome PreparedGroup::AnnounceAt(size_t index, void* data) {
  if (data == nullptr && index < members_.size() && TensorBytes(members_[index].request) > 0) {
    return Invalid(
        absl::StrCat("member ", index, " '", members_[index].request.name, "' is announced without its data"));
  }
  return AnnounceAfter(index, [data](Submission& member) { member.input = member.output = data; });
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

Outcome PreparedGroup::Submit(Batch& batch) {
  const std::shared_ptr<Session> session = session_.lock();
  const auto members = absl::MakeConstSpan(members_).subspan(batch.begin, batch.end - batch.begin);
  batch.status = session == nullptr
                     ? absl::CancelledError(
                           absl::StrCat("group '", name_, "' was prepared for a job that has ended: prepare it again"))
                     : session->runtime().SubmitChecked(members, &batch.handles);
  return Failure(batch.status, Answer::kSubmission);
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
      // An error of the stream that is to wait is not an error of the operation.
      note(status, absl::IsInvalidArgument(status) ? Answer::kSubmission : Answer::kCompletion);
    }
    batch.handles.clear();
    batch.missing.store(batch.end - batch.begin, std::memory_order_relaxed);
  }
  for (std::atomic<bool>& announced : announced_) announced.store(false, std::memory_order_relaxed);
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
  Outcome outcome = CheckEnded([deadline](const Handle& handle) { return handle.LaunchesBy(deadline); }, ended);
  return *ended ? OrderBefore(stream) : outcome;
}

Outcome PreparedGroup::OrderBefore(void* stream) {
  found_overflow_ = false;
  return EndStep([stream](const Handle& handle) {
    absl::Status status = handle.OrderBefore(stream);
    if (!status.ok()) handle.Wait().IgnoreError();  // nothing is in flight after an error
    return status;
  });
}

}  // namespace ronda
