// SPDX-License-Identifier: Apache-2.0

#include "client/prepared_group.h"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <map>
#include <memory>
#include <numeric>
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
#include "runtime/base/types.h"
#include "runtime/engine/device/rank_device.h"
#include "runtime/engine/handle.h"
#include "runtime/engine/submission.h"

namespace ronda {
namespace {

// The maximum number of members, and of bytes, in a batch.
struct BatchLimits {
  size_t members;
  size_t first_bytes;  // of a group's first batch
  size_t bytes;
};

// In host memory, the ranks reduce a batch of this size in a fraction of a millisecond, so waiting for its last member
// costs little. The cost of the batch's lock and wake-up is also small per member.
constexpr BatchLimits kHostLimits = {.members = 32, .first_bytes = size_t{1} << 20, .bytes = size_t{1} << 20};

// On a GPU, each batch costs kernel launches and events, and a program announces gradients long before the device has
// computed them. Batches in GPU memory are therefore as large as the buckets of DistributedDataParallel. The first
// batch is small, so that communication begins early.
constexpr BatchLimits kDeviceLimits = {.members = 256, .first_bytes = size_t{1} << 20, .bytes = size_t{25} << 20};

// Returns the positions at which the batches of these members begin. A batch is either a tensor group, or a run of
// ungrouped members in the same kind of memory.
std::vector<size_t> Cut(absl::Span<const TensorRequest* const> members, bool each_alone) {
  std::vector<size_t> begins;
  size_t bytes = 0;
  for (size_t i = 0; i < members.size(); ++i) {
    const TensorRequest& request = *members[i];
    const BatchLimits& limits = request.memory == Memory::kHost ? kHostLimits : kDeviceLimits;
    const size_t most = begins.size() <= 1 ? limits.first_bytes : limits.bytes;
    const size_t own = TensorBytes(request);
    const auto begins_here = [&] {
      if (i == 0) return true;
      const TensorRequest& before = *members[i - 1];
      if (request.group != before.group) return true;
      if (!request.group.empty()) return false;
      return each_alone || request.memory != before.memory || i - begins.back() == limits.members || bytes + own > most;
    };
    if (begins_here()) {
      begins.push_back(i);
      bytes = 0;
    }
    bytes += own;
  }
  return begins;
}

// Like Runtime::Check(), but a member may have no buffers.
absl::Status Check(const Session& session, std::vector<Submission>& members) {
  static std::byte somewhere{};
  std::vector<Submission*> without;
  for (Submission& member : members) {
    if (member.input != nullptr || member.output != nullptr) continue;
    without.push_back(&member);
    member.input = member.output = &somewhere;
  }
  absl::Status status = session.runtime().Check(members);
  for (Submission* const member : without) member->input = member->output = nullptr;
  return status;
}

// Calls OrderStream(). After an error, waits until the operation has completed.
absl::Status OrderOrWait(const Handle& handle, WaitingStream& stream) {
  absl::Status status = OrderStream(handle, stream);
  if (!status.ok()) handle.Wait().IgnoreError();
  return status;
}

}  // namespace

absl::StatusOr<std::unique_ptr<PreparedGroup>> PreparedGroup::Create(const std::shared_ptr<Session>& session,
                                                                     std::string name,
                                                                     std::vector<Submission> members) {
  RONDA_RETURN_IF_ERROR(Check(*session, members));
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
      order_(members_.size()),
      places_(members_.size()),
      announced_(members_.size()),
      turns_(members_.size()) {
  std::iota(order_.begin(), order_.end(), 0);
  for (size_t i = 0; i < members_.size(); ++i) {
    places_[i].position = i;
    places_[i].has_buffer = members_[i].output != nullptr || TensorBytes(members_[i].request) == 0;
  }
  Arrange(order_);
}

PreparedGroup::~PreparedGroup() {
  for (const Batch& batch : batches_) {
    for (const std::shared_ptr<Handle>& handle : batch.handles) handle->Wait().IgnoreError();
  }
  Finish();
}

Outcome PreparedGroup::Invalid(absl::string_view what) const {
  return {RONDA_ERROR_INVALID_ARGUMENT, absl::StrCat("group '", name_, "': ", what)};
}

Outcome PreparedGroup::InvalidMember(size_t index, absl::string_view what) const {
  return Invalid(absl::StrCat("member ", index, " '", At(index).request.name, "' ", what));
}

Outcome PreparedGroup::NotBetweenSteps() const {
  for (size_t i = 0; i < announced_.size(); ++i) {
    if (!announced_[i].load(std::memory_order_relaxed)) continue;
    return InvalidMember(i, "has been announced in this step: call ronda_group_wait() first");
  }
  return {};
}

std::shared_ptr<Session> PreparedGroup::SessionOr(absl::Status* ended) const {
  std::shared_ptr<Session> session = session_.lock();
  if (session == nullptr) {
    *ended = absl::CancelledError(
        absl::StrCat("group '", name_, "' was prepared for a job that has ended: prepare it again"));
  }
  return session;
}

std::vector<size_t> PreparedGroup::Positions() const {
  std::vector<size_t> positions;
  for (const Place& place : places_) positions.push_back(place.position);
  return positions;
}

void PreparedGroup::Arrange(const std::vector<size_t>& keys) {
  std::map<absl::string_view, size_t> last_of;  // of each tensor group
  for (size_t i = 0; i < keys.size(); ++i) {
    size_t& last = last_of[At(i).request.group];
    last = std::max(last, keys[i]);
  }
  std::vector<size_t> order(keys.size());
  std::iota(order.begin(), order.end(), 0);
  const auto key_of = [&](size_t member) {
    const std::string& group = At(member).request.group;
    return std::pair(group.empty() ? keys[member] : last_of[group], keys[member]);
  };
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return key_of(a) < key_of(b); });
  std::vector<const TensorRequest*> requests;
  for (const size_t member : order) requests.push_back(&At(member).request);
  const std::vector<size_t> begins = Cut(requests, learns_);
  std::vector<Batch> batches(begins.size());
  for (size_t i = 0; i < begins.size(); ++i) {
    batches[i].begin = begins[i];
    batches[i].end = i + 1 < begins.size() ? begins[i + 1] : order.size();
    batches[i].missing.store(batches[i].end - batches[i].begin, std::memory_order_relaxed);
    batches[i].handles.reserve(batches[i].end - batches[i].begin);
  }
  std::vector<Submission> members;
  members.reserve(order.size());
  // From here on, nothing throws.
  for (const size_t member : order) members.push_back(std::move(At(member)));
  for (size_t i = 0; i < batches.size(); ++i) {
    for (size_t position = batches[i].begin; position < batches[i].end; ++position) {
      places_[order[position]].position = position;
      places_[order[position]].batch = i;
    }
  }
  members_ = std::move(members);
  order_ = std::move(order);
  batches_ = std::move(batches);
}

Outcome PreparedGroup::LearnOrder() {
  Outcome outcome = NotBetweenSteps();
  if (!outcome.ok()) return outcome;
  learns_ = true;
  Arrange(Positions());
  return {};
}

Outcome PreparedGroup::Combine(absl::Span<const size_t> members, const std::string& name) {
  Outcome outcome = NotBetweenSteps();
  if (!outcome.ok()) return outcome;
  absl::Status ended;
  const std::shared_ptr<Session> session = SessionOr(&ended);
  if (session == nullptr) return Failure(ended, Answer::kSubmission);
  for (const size_t index : members) {
    if (index >= size()) return Invalid(absl::StrCat("there is no member ", index, " among ", size()));
  }
  for (size_t i = 0; i < size(); ++i) {
    if (At(i).request.group != name) continue;
    return InvalidMember(i, absl::StrCat("is in tensor group '", name, "': give another tensor group another name"));
  }
  const auto name_all = [&](absl::Span<const size_t> which, const std::string& group, size_t count) {
    for (const size_t index : which) {
      At(index).request.group = group;
      At(index).request.group_size = static_cast<int>(count);
    }
  };
  for (size_t i = 0; i < members.size(); ++i) {
    if (!At(members[i]).request.group.empty()) {
      name_all(members.first(i), "", 0);
      return InvalidMember(members[i], "is in a tensor group already: give each member to one");
    }
    name_all(members.subspan(i, 1), name, members.size());
  }
  const absl::Status status = Check(*session, members_);
  if (!status.ok()) {
    name_all(members, "", 0);
    return Failure(status, Answer::kSubmission);
  }
  Arrange(Positions());
  return {};
}

Outcome PreparedGroup::Announce(size_t index) {
  if (index < size() && !places_[index].has_buffer) return InvalidMember(index, "is announced without its data");
  return AnnounceAfter(index, [](Submission&) {});
}

Outcome PreparedGroup::AnnounceAt(size_t index, void* data, std::optional<void*> stream) {
  if (index < size()) {
    const TensorRequest& request = At(index).request;
    if (data == nullptr && TensorBytes(request) > 0) return InvalidMember(index, "is announced without its data");
    if (stream.value_or(nullptr) != nullptr && request.memory == Memory::kHost) {
      return InvalidMember(index, "is announced with a stream, but it is in host memory: pass no stream");
    }
  }
  return AnnounceAfter(index, [&](Submission& member) {
    member.input = member.output = data;
    places_[index].has_buffer = true;
    if (stream.has_value()) member.stream = *stream;
  });
}

Outcome PreparedGroup::AnnounceAfter(size_t index, absl::FunctionRef<void(Submission&)> prepare) {
  if (index >= size()) return Invalid(absl::StrCat("there is no member ", index, " among ", size()));
  if (announced_[index].exchange(true, std::memory_order_relaxed)) {
    return InvalidMember(index, "has been announced in this step: call ronda_group_wait() first");
  }
  if (learns_) turns_[index] = next_turn_.fetch_add(1, std::memory_order_relaxed);
  prepare(At(index));
  Batch& batch = batches_[places_[index].batch];
  return batch.missing.fetch_sub(1, std::memory_order_acq_rel) > 1 ? Outcome() : Submit(batch);
}

Outcome PreparedGroup::SubmitAll(Batch& batch, absl::Span<const Submission> members) {
  const std::shared_ptr<Session> session = SessionOr(&batch.status);
  if (session != nullptr) {
    Runtime& runtime = session->runtime();
    batch.status = members.front().request.group.empty() ? runtime.SubmitChecked(members, &batch.handles)
                                                         : runtime.SubmitAll(members, &batch.handles);
  }
  return Failure(batch.status, Answer::kSubmission);
}

Outcome PreparedGroup::SubmitAnnounced(Batch& batch) {
  if (batch.missing.load(std::memory_order_acquire) == 0) return {};
  std::vector<Submission> announced;
  for (size_t position = batch.begin; position < batch.end; ++position) {
    if (announced_[order_[position]].load(std::memory_order_relaxed)) announced.push_back(members_[position]);
  }
  return announced.empty() ? Outcome() : SubmitAll(batch, announced);
}

Outcome PreparedGroup::Detach(std::vector<std::shared_ptr<Handle>>* handles) {
  handles->assign(size(), nullptr);
  Outcome first_error;
  for (Batch& batch : batches_) {
    Outcome submitted = SubmitAnnounced(batch);
    if (submitted.ok()) submitted = Failure(batch.status, Answer::kSubmission);
    if (first_error.ok()) first_error = std::move(submitted);
  }
  for (Batch& batch : batches_) {
    auto handle = batch.handles.begin();  // a batch whose submission failed has none
    for (size_t position = batch.begin; position < batch.end && handle != batch.handles.end(); ++position) {
      const size_t member = order_[position];
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
  if (next_turn_.exchange(0, std::memory_order_relaxed) < size() || !learns_) return;
  learns_ = false;
  Arrange(turns_);
}

Outcome PreparedGroup::CheckComplete() const {
  for (const Batch& batch : batches_) {
    if (batch.missing.load(std::memory_order_acquire) == 0) continue;
    size_t position = batch.begin;
    while (announced_[order_[position]].load(std::memory_order_relaxed)) ++position;
    return InvalidMember(order_[position],
                         "has not been announced in this step: call ronda_group_ready() for it first");
  }
  return {};
}

Outcome PreparedGroup::EndStep(WaitFn wait) {
  Outcome first_error = CheckComplete();
  if (!first_error.ok()) return first_error;
  const auto note = [&](const absl::Status& status, Answer from) {
    if (first_error.ok() && !status.ok()) first_error = Failure(status, from);
  };
  for (size_t member = 0; member < size(); ++member) {
    const Batch& batch = batches_[places_[member].batch];
    note(batch.status, Answer::kSubmission);
    if (batch.handles.empty()) continue;  // the submission failed
    const absl::Status status = wait(member, batch.handles[places_[member].position - batch.begin]);
    // INVALID_ARGUMENT is an error of the waiting stream, not of the operation.
    note(status, absl::IsInvalidArgument(status) ? Answer::kSubmission : Answer::kCompletion);
  }
  for (Batch& batch : batches_) batch.status = absl::OkStatus();
  BeginStep();
  return first_error;
}

Outcome PreparedGroup::Wait() {
  std::optional<size_t> overflowed;
  Outcome outcome = EndStep([&](size_t member, const std::shared_ptr<Handle>& handle) {
    absl::Status status = handle->Wait();
    if (!overflowed && status.ok() && handle->result().FindOverflow() == OperationResult::Overflow::kFound) {
      overflowed = member;
    }
    return status;
  });
  overflowed_ = overflowed;
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
  overflowed_.reset();
  WaitingStream waiting(stream);
  return EndStep([&waiting](size_t, const std::shared_ptr<Handle>& handle) { return OrderOrWait(*handle, waiting); });
}

Outcome PreparedGroup::OrderBeforeOwnStreams() {
  Outcome known = CheckComplete();
  if (!known.ok()) return known;
  for (const std::shared_ptr<Handle>& handle : on_device_) {
    if (known.ok() && handle->done()) known = Failure(handle->Wait(), Answer::kCompletion);
  }
  on_device_.clear();
  on_device_.reserve(size());
  overflowed_.reset();
  std::optional<WaitingStream> waiting;  // the stream of the last member; neighbours often have the same stream
  Outcome outcome = EndStep([&](size_t member, const std::shared_ptr<Handle>& handle) {
    const Submission& submission = At(member);
    if (!waiting || waiting->handle() != submission.stream) waiting.emplace(submission.stream);
    if (submission.request.memory != Memory::kHost) on_device_.push_back(handle);
    return OrderOrWait(*handle, *waiting);
  });
  return known.ok() ? outcome : known;
}

Outcome PreparedGroup::Finish() const {
  Outcome first_error;
  for (const std::shared_ptr<Handle>& handle : on_device_) {
    Outcome outcome = Failure(handle->Wait(), Answer::kCompletion);
    if (first_error.ok()) first_error = std::move(outcome);
  }
  return first_error;
}

}  // namespace ronda
