// SPDX-License-Identifier: Apache-2.0

// The C ABI on top of the runtime: prepared groups, which are allreduces that a program repeats in every step.

#pragma GCC visibility push(default)
#include "client/ronda.h"
#pragma GCC visibility pop

#include <atomic>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "client/arguments.h"
#include "client/c_api_support.h"
#include "client/session.h"
#include "runtime/base/status_macros.h"
#include "runtime/engine/device/rank_device.h"
#include "runtime/engine/handle.h"
#include "runtime/engine/submission.h"

namespace ronda {

// Submissions that are checked once, announced separately in each step, and waited for together. They are submitted in
// batches of neighbours. The thread that announces the last member of a batch submits the batch.
//
// Announce is thread-safe. The other functions are called when no other function is running. Memory ordering: the
// counter of a batch is decremented with acquire and release. So the thread that brings it to zero sees everything that
// other threads had written to the inputs of their members, and passes it on with the submission.
class PreparedGroup {
 public:
  // `members` belong to `session`, which the group does not keep alive. `name` is for messages.
  // Errors: INVALID_ARGUMENT: those of Runtime::Check; two members with the same name.
  static absl::StatusOr<std::unique_ptr<PreparedGroup>> Create(const std::shared_ptr<Session>& session,
                                                               std::string name, std::vector<Submission> members);

  // Waits for the members that have been submitted.
  ~PreparedGroup();
  PreparedGroup(const PreparedGroup&) = delete;
  PreparedGroup& operator=(const PreparedGroup&) = delete;

  // The input of member `index` is complete.
  // Errors: INVALID_ARGUMENT if the member does not exist, or has been announced in this step; those of a submission.
  Outcome Announce(size_t index);
  // As Announce(), for a member that is reduced in place at `data`, in this step and until a later call moves it again.
  // `stream`, or else the member's previous stream, has been given the work that fills the input. INVALID_ARGUMENT also
  // if `data` is null and the member has elements, or if a member in host memory gets a stream.
  Outcome AnnounceAt(size_t index, void* data, std::optional<void*> stream);

  // Waits for all members and begins the next step. Errors: INVALID_ARGUMENT, without any change, if a member was not
  // announced; else the first error of a submission or an operation.
  Outcome Wait();
  // As Wait(), but if a member is still in flight when MonotonicTime() reaches `deadline`, `*ended` becomes false and
  // nothing changes.
  Outcome WaitUntil(absl::Duration deadline, bool* ended);
  // As Wait() and WaitUntil(), with OrderStream() instead of Handle::Wait.
  Outcome OrderBefore(void* stream);
  Outcome OrderBeforeUntil(void* stream, absl::Duration deadline, bool* ended);

  // Ends the step with the members that have been announced. Submits those whose batch lacks a neighbour, and begins
  // the next step. `*handles` gets an entry per member, null if the member was not announced.
  // Errors: the first error of a submission. Then nothing is in flight, and `*handles` is empty.
  Outcome Detach(std::vector<std::shared_ptr<Handle>>* handles);

  // Whether the last Wait() has found an overflow.
  bool found_overflow() const { return found_overflow_; }
  size_t size() const { return members_.size(); }

 private:
  // Aligned, so that threads that announce members of different batches do not write to the same cache line.
  struct alignas(64) Batch {
    size_t begin = 0;  // the batch's members
    size_t end = 0;
    std::atomic<size_t> missing{0};  // members that have not been announced in this step
    // Written by the thread that submits the batch:
    absl::Status status;
    std::vector<std::shared_ptr<Handle>> handles;
  };

  PreparedGroup(const std::shared_ptr<Session>& session, std::string name, std::vector<Submission> members);

  Outcome Invalid(absl::string_view what) const;
  // Calls `prepare` for the member before the rest of the batch, or the runtime, can see the member.
  Outcome AnnounceAfter(size_t index, absl::FunctionRef<void(Submission&)> prepare);
  Outcome Submit(Batch& batch) {
    return SubmitAll(batch, absl::MakeConstSpan(members_).subspan(batch.begin, batch.end - batch.begin));
  }
  // Submits the announced members of a batch that was not submitted because other members are missing.
  Outcome SubmitAnnounced(Batch& batch);
  Outcome SubmitAll(Batch& batch, absl::Span<const Submission> members);
  // Forgets which members have been announced.
  void BeginStep();
  // INVALID_ARGUMENT if a member is missing.
  Outcome CheckComplete() const;
  // Whether `has_ended` returns true for the handles of all members. Stops at the first handle for which it returns
  // false. Errors: CheckComplete()'s.
  Outcome CheckEnded(absl::FunctionRef<bool(const Handle&)> has_ended, bool* ended) const;
  // Ends the step: calls `wait` for each handle.
  Outcome EndStep(absl::FunctionRef<absl::Status(const Handle&)> wait);

  const std::weak_ptr<Session> session_;  // weak, because the end of a rank that is a thread waits for its release
  const std::string name_;
  std::vector<Submission> members_;           // the thread that announces a member writes its buffers
  std::vector<std::atomic<bool>> announced_;  // per member: announced in this step
  std::vector<size_t> batch_of_;              // per member: the index of its batch
  std::vector<Batch> batches_;
  bool found_overflow_ = false;
};

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

// The caller's pointer to a group.
struct ronda_prepared_group {
  std::unique_ptr<ronda::PreparedGroup> group;
};

namespace ronda {
namespace {

Outcome Prepare(const ronda_allreduce_args* args, size_t count, const char* name, ronda_group* group) {
  if (group == nullptr) return NullArgument("ronda_prepare_group", "group");
  const std::shared_ptr<Session> session = CurrentSession();
  if (session == nullptr) return NotInitialized();
  std::vector<Submission> members;
  absl::Status status = ToMembers(args, count, name, session->caller(), &members);
  if (!status.ok()) return Failure(status, Answer::kSubmission);
  members.resize(count);
  auto prepared = PreparedGroup::Create(session, name, std::move(members));
  if (!prepared.ok()) return Failure(prepared.status(), Answer::kSubmission);
  *group = new ronda_prepared_group{.group = *std::move(prepared)};
  return {};
}

// Runs `body` on a group.
template <typename Body>
ronda_status CallWithGroup(const char* function, ronda_group group, const Body& body) noexcept {
  return Call([&]() -> Outcome {
    if (group == nullptr) {
      return {RONDA_ERROR_INVALID_ARGUMENT,
              absl::StrCat(function, ": group is NULL: pass one from ronda_prepare_group()")};
    }
    return body(*group->group);
  });
}

// Reserves room for the numbers before the group gives up its handles.
Outcome Detach(PreparedGroup& prepared, ronda_handle* numbers) {
  size_t room = prepared.size();
  globals().handles.Reserve(room);
  const absl::Cleanup unreserve = [&room] {
    if (room > 0) globals().handles.Unreserve(room);
  };
  std::vector<std::shared_ptr<Handle>> handles;
  Outcome outcome = prepared.Detach(&handles);
  for (size_t i = 0; i < handles.size(); ++i) {
    numbers[i] = 0;
    if (handles[i] == nullptr) continue;
    --room;
    numbers[i] = globals().handles.Add(Operation(handles[i], OpType::kAllreduce));
  }
  return outcome;
}

// Runs `wait`, which has a deadline, on a group, and writes whether the step has ended.
template <typename WaitFn>
ronda_status WaitFor(const char* function, ronda_group group, double timeout_s, int* done,
                     const WaitFn& wait) noexcept {
  return CallWithGroup(function, group, [&](PreparedGroup& prepared) -> Outcome {
    if (done == nullptr) return NullArgument(function, "done");
    const absl::StatusOr<absl::Duration> deadline = DeadlineOf(function, timeout_s);
    if (!deadline.ok()) return Failure(deadline.status(), Answer::kSubmission);
    bool ended = false;
    Outcome outcome = wait(prepared, *deadline, &ended);
    *done = ended ? 1 : 0;
    return outcome;
  });
}

}  // namespace
}  // namespace ronda

ronda_status ronda_prepare_group(const ronda_allreduce_args* args, size_t count, const char* name, ronda_group* group) {
  return ronda::Call([&] { return ronda::Prepare(args, count, name, group); });
}

ronda_status ronda_group_ready(ronda_group group, size_t index) {
  return ronda::CallWithGroup("ronda_group_ready", group,
                              [index](ronda::PreparedGroup& prepared) { return prepared.Announce(index); });
}

ronda_status ronda_group_ready_at(ronda_group group, size_t index, void* data) {
  return ronda::CallWithGroup("ronda_group_ready_at", group, [index, data](ronda::PreparedGroup& prepared) {
    return prepared.AnnounceAt(index, data, std::nullopt);
  });
}

ronda_status ronda_group_ready_on_stream(ronda_group group, size_t index, void* data, void* stream) {
  return ronda::CallWithGroup(
      "ronda_group_ready_on_stream", group,
      [index, data, stream](ronda::PreparedGroup& prepared) { return prepared.AnnounceAt(index, data, stream); });
}

ronda_status ronda_group_wait(ronda_group group) {
  return ronda::CallWithGroup("ronda_group_wait", group,
                              [](ronda::PreparedGroup& prepared) { return prepared.Wait(); });
}

ronda_status ronda_group_wait_for(ronda_group group, double timeout_s, int* done) {
  return ronda::WaitFor("ronda_group_wait_for", group, timeout_s, done,
                        [](ronda::PreparedGroup& prepared, absl::Duration deadline, bool* ended) {
                          return prepared.WaitUntil(deadline, ended);
                        });
}

ronda_status ronda_group_wait_on_stream(ronda_group group, void* stream) {
  return ronda::CallWithGroup("ronda_group_wait_on_stream", group,
                              [stream](ronda::PreparedGroup& prepared) { return prepared.OrderBefore(stream); });
}

ronda_status ronda_group_wait_on_stream_for(ronda_group group, void* stream, double timeout_s, int* done) {
  return ronda::WaitFor("ronda_group_wait_on_stream_for", group, timeout_s, done,
                        [stream](ronda::PreparedGroup& prepared, absl::Duration deadline, bool* ended) {
                          return prepared.OrderBeforeUntil(stream, deadline, ended);
                        });
}

ronda_status ronda_group_detach(ronda_group group, ronda_handle* handles) {
  constexpr char kFunction[] = "ronda_group_detach";
  return ronda::CallWithGroup(kFunction, group, [&](ronda::PreparedGroup& prepared) -> ronda::Outcome {
    if (handles == nullptr) return ronda::NullArgument(kFunction, "handles");
    return ronda::Detach(prepared, handles);
  });
}

ronda_status ronda_group_found_inf(ronda_group group, int* found) {
  constexpr char kFunction[] = "ronda_group_found_inf";
  return ronda::CallWithGroup(kFunction, group, [&](const ronda::PreparedGroup& prepared) -> ronda::Outcome {
    if (found == nullptr) return ronda::NullArgument(kFunction, "found");
    *found = prepared.found_overflow() ? 1 : 0;
    return {};
  });
}

ronda_status ronda_group_release(ronda_group group) {
  return ronda::CallWithGroup("ronda_group_release", group, [group](ronda::PreparedGroup&) -> ronda::Outcome {
    delete group;
    return {};
  });
}
