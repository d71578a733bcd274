// SPDX-License-Identifier: Apache-2.0

#include "runtime/collectives/nccl/nccl_groups.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <thread>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "runtime/base/clock.h"
#include "runtime/base/logging.h"
#include "runtime/base/status_macros.h"
#include "runtime/collectives/nccl/nccl_entry.h"

namespace ronda {
namespace {

// How long a wait polls before it sleeps between polls: long enough for NCCL's threads to enqueue most calls.
constexpr absl::Duration kLookOn = absl::Microseconds(100);
constexpr absl::Duration kShortestSleep = absl::Microseconds(20);
constexpr absl::Duration kLongestSleep = absl::Milliseconds(2);

}  // namespace

NcclGroups::NcclGroups(Options options) : options_(std::move(options)), nccl_(options_.library->functions) {}

NcclGroups::~NcclGroups() { End(); }

void NcclGroups::End() {
  if (options_.device->is_held()) return;
  if (failure().ok() && Deregister()) {
    FinalizeChildren();
    Finalize();
  }
  AbortAll();
}

absl::StatusOr<NcclGroups::Entry*> NcclGroups::For(const CallInfo& info, const Members& members, NcclUse use) {
  if (members.size() == 1) return nullptr;
  Entry* entry = nullptr;
  {
    const MutexLock lock(&mu_);
    if (!failure_.ok()) return failure_;
    for (const std::unique_ptr<Entry>& known : entries_) {
      if (known->use == use && known->IsOf(members)) return members.IncludeSelf() ? known.get() : nullptr;
    }
    std::vector<RankId> ranks;
    std::vector<RankId> names;
    for (int i = 0; i < members.size(); ++i) {
      ranks.push_back(members[i]);
      names.push_back(JobRank(members[i]));
    }
    entry = entries_.emplace_back(std::make_unique<Entry>(use, std::move(ranks), std::move(names))).get();
  }
  RONDA_ASSIGN_OR_RETURN(const NcclUniqueId id, AgreeOnId(info, members, *entry));
  if (!members.IncludeSelf()) return nullptr;
  RONDA_RETURN_IF_ERROR(Connect(info, id, members, entry));
  RONDA_RETURN_IF_ERROR(Split(info, members, entry));
  return entry;
}

absl::Status NcclGroups::Connect(const CallInfo& info, const NcclUniqueId& id, const Members& members, Entry* entry) {
  NcclConfig config = {.split_share = 1};
  return Make(info, entry, "making the communicator",
              [&] { return nccl_.CommInitRankConfig(&entry->handle, members.size(), id, members.self(), &config); });
}

absl::Status NcclGroups::Split(const CallInfo& info, const Members& members, Entry* entry) {
  if (nccl_.CommSplit == nullptr) return absl::OkStatus();
  constexpr int kColor = 0;
  NcclConfig config = {.blocking = 1};
  if (options_.copy_engines == NcclCopyEngines::kUsed && UsesWindows(entry->use)) {
    config.version = 22800;
    config.cta_policy = kNcclCopyEngines;
  }
  const auto child = std::make_shared<Child>();
  {
    const MutexLock lock(&mu_);
    entry->aside = child;
  }
  RONDA_RETURN_IF_ERROR(Make(info, entry, "splitting the communicator", [&] {
    return nccl_.CommSplit(entry->handle, kColor, members.self(), child->place(), &config);
  }));
  const MutexLock lock(&mu_);
  entry->child = std::move(entry->aside);
  return failure_;
}

absl::Status NcclGroups::Make(const CallInfo& info, Entry* entry, absl::string_view doing,
                              absl::FunctionRef<NcclResult()> begin) {
  NcclResult result = NcclResult::kSuccess;
  absl::Status failed;
  RONDA_RETURN_IF_ERROR(options_.device->Call("making an NCCL communicator", [&](const ronda_cuda_plugin&) {
    const MutexLock lock(&mu_);
    failed = failure_;
    if (failed.ok()) result = begin();
    return 0;
  }));
  RONDA_RETURN_IF_ERROR(failed);
  Wait wait = {.doing = doing, .call = &info, .limits = info.limits};
  // Connecting many ranks may take NCCL longer than a program's deadline for one collective.
  wait.limits.deadline = std::max(wait.limits.deadline, options_.init_deadline);
  if (result == NcclResult::kSuccess || result == NcclResult::kInProgress) return AwaitReady(entry, wait);
  absl::Status failure;
  {
    const MutexLock lock(&mu_);
    failure = Explain(*entry, entry->handle, result, wait.What());
  }
  return Fail(std::move(failure));
}

absl::StatusOr<NcclUniqueId> NcclGroups::AgreeOnId(const CallInfo& info, const Members& members, const Entry& entry) {
  Invitation invitation = {};
  if (members.IncludeSelf() && members.self() == 0) {
    options_.library->version.copy(invitation.version, sizeof(invitation.version) - 1);
    RONDA_RETURN_IF_ERROR(options_.device->Call("asking NCCL for an id", [&](const ronda_cuda_plugin&) {
      invitation.result = nccl_.GetUniqueId(&invitation.id);
      return 0;
    }));
  }
  const CallInfo agreement = {.label = info.label, .group = info.group, .op = info.op, .limits = info.limits};
  RONDA_RETURN_IF_ERROR(options_.share(agreement, &invitation, sizeof(invitation)));
  if (!members.IncludeSelf()) return invitation.id;
  if (options_.library->version != invitation.version) {
    return Fail(absl::FailedPreconditionError(
        absl::StrCat("rank ", JobRank(members[0]), " has NCCL ", invitation.version, ", and rank ", self(), " NCCL ",
                     options_.library->version, " (", options_.library->path, "): install one version on all hosts")));
  }
  if (invitation.result == NcclResult::kSuccess) return invitation.id;
  return Fail(absl::UnavailableError(absl::StrCat("NCCL communicator of ", entry.Name(), ": rank ", JobRank(members[0]),
                                                  " could not begin it: ", nccl_.GetErrorString(invitation.result))));
}

absl::Status NcclGroups::Run(const CallInfo& info, Entry* entry, Enqueue enqueue) {
  return nccl_.CommSplit == nullptr ? RunInThread(info, entry, enqueue) : RunInChild(info, entry, enqueue);
}

NcclResult NcclGroups::RunGroup(NcclHandle handle, Enqueue enqueue) const {
  const NcclResult begun = nccl_.GroupStart();
  if (begun != NcclResult::kSuccess) return begun;
  const NcclResult enqueued = enqueue(nccl_, handle);
  const NcclResult ended = nccl_.GroupEnd();
  return enqueued == NcclResult::kSuccess || enqueued == NcclResult::kInProgress ? ended : enqueued;
}

absl::Status NcclGroups::RunInChild(const CallInfo& info, Entry* entry, Enqueue enqueue) {
  return CallChild(entry, {.call = &info}, [&](NcclHandle handle) { return RunGroup(handle, enqueue); });
}

// Calls NCCL without holding mu_, because the call may block until another thread aborts it.
absl::Status NcclGroups::CallChild(Entry* entry, const Wait& wait, absl::FunctionRef<NcclResult(NcclHandle)> call) {
  std::shared_ptr<Child> child;
  NcclHandle handle = nullptr;
  {
    const MutexLock lock(&mu_);
    RONDA_RETURN_IF_ERROR(failure_);
    if (entry->child == nullptr) {
      return absl::FailedPreconditionError(absl::StrCat("NCCL communicator of ", entry->Name(), ": it was never made"));
    }
    child = entry->child;
    handle = child->Enter();
  }
  const absl::Cleanup leave = [&child] { child->Leave(); };
  NcclResult result = NcclResult::kSuccess;
  RONDA_RETURN_IF_ERROR(options_.device->Call("NCCL", [&](const ronda_cuda_plugin&) {
    result = call(handle);
    return 0;
  }));
  if (result == NcclResult::kSuccess) return absl::OkStatus();
  absl::Status failure;
  {
    const MutexLock lock(&mu_);
    failure = Explain(*entry, handle, result, wait.What());
  }
  return Fail(std::move(failure));
}

absl::Status NcclGroups::RunInThread(const CallInfo& info, Entry* entry, Enqueue enqueue) {
  const Wait wait = {.call = &info, .limits = info.limits};
  NcclResult result = NcclResult::kSuccess;
  absl::Status failure;
  RONDA_RETURN_IF_ERROR(options_.device->Call("NCCL", [&](const ronda_cuda_plugin&) {
    const MutexLock lock(&mu_);
    failure = failure_;
    if (!failure.ok()) return 0;
    result = RunGroup(entry->handle, enqueue);
    if (result != NcclResult::kSuccess && result != NcclResult::kInProgress) {
      failure = Explain(*entry, entry->handle, result, wait.What());
    }
    return 0;
  }));
  if (!failure.ok()) return Fail(std::move(failure));
  return result == NcclResult::kSuccess ? absl::OkStatus() : AwaitReady(entry, wait);
}

std::string NcclGroups::Wait::What() const {
  if (call == nullptr) return std::string(doing);
  return absl::StrCat(doing, doing.empty() ? "" : " for ", Name(call->op), " '", call->label, "'");
}

absl::Status NcclGroups::AwaitReady(Entry* entry, const Wait& wait) {
  const absl::Duration begin = MonotonicTime();
  absl::Duration interval = kShortestSleep;
  bool is_reported = false;
  while (true) {
    RONDA_ASSIGN_OR_RETURN(const bool is_ready, IsReady(entry, wait));
    if (is_ready) return absl::OkStatus();
    const absl::Duration waited = MonotonicTime() - begin;
    if (waited < kLookOn) {
      std::this_thread::yield();
      continue;
    }
    if (const absl::Status failure = options_.job_failure(); !failure.ok()) return Fail(failure);
    if (waited > wait.limits.deadline) {
      return Fail(TooLong(*entry, wait));
    }
    if (waited > wait.limits.warning && !std::exchange(is_reported, true)) Report(*entry, wait);
    absl::SleepFor(interval);
    interval = std::min(2 * interval, kLongestSleep);
  }
}

absl::Status NcclGroups::TooLong(const Entry& entry, const Wait& wait) const {
  return absl::DeadlineExceededError(absl::StrCat(
      "NCCL communicator of ", entry.Name(), ", on rank ", self(), ": ", wait.What(), " has taken longer than ",
      absl::FormatDuration(wait.limits.deadline), ": one of them has not come to it"));
}

void NcclGroups::Report(const Entry& entry, const Wait& wait) const {
  Log(LogLevel::kWarning, self(),
      absl::StrCat("NCCL communicator of ", entry.Name(), ": ", wait.What(), " has taken longer than ",
                   absl::FormatDuration(wait.limits.warning), ": one of them may not have come to it"));
}

absl::StatusOr<bool> NcclGroups::IsReady(Entry* entry, const Wait& wait) {
  absl::Status failure;
  {
    const MutexLock lock(&mu_);
    if (!failure_.ok()) return failure_;
    NcclResult state = NcclResult::kSuccess;
    const NcclResult result = nccl_.CommGetAsyncError(entry->handle, &state);
    if (result != NcclResult::kSuccess) state = result;
    if (state == NcclResult::kSuccess) return true;
    if (state == NcclResult::kInProgress) return false;
    failure = Explain(*entry, entry->handle, state, wait.What());
  }
  return Fail(std::move(failure));
}

absl::Status NcclGroups::Explain(const Entry& entry, NcclHandle handle, NcclResult result,
                                 absl::string_view what) const {
  const char* const last = nccl_.GetLastError(handle);
  const std::string text = absl::StrCat("NCCL communicator of ", entry.Name(), ", on rank ", self(), ": ", what, ": ",
                                        nccl_.GetErrorString(result), last == nullptr || *last == '\0' ? "" : ": ",
                                        last == nullptr ? "" : last);
  const bool is_peers_doing = result == NcclResult::kRemoteError || result == NcclResult::kSystemError;
  return is_peers_doing ? absl::UnavailableError(text) : absl::InternalError(text);
}

absl::Status NcclGroups::Fail(absl::Status failure) const {
  const MutexLock lock(&mu_);
  if (failure_.ok()) failure_ = std::move(failure);
  return failure_;
}

absl::Status NcclGroups::failure() const {
  const MutexLock lock(&mu_);
  for (const std::unique_ptr<Entry>& entry : entries_) {
    if (!failure_.ok()) break;
    for (const NcclHandle handle : {entry->handle, entry->child == nullptr ? nullptr : entry->child->handle()}) {
      if (handle == nullptr || !failure_.ok()) continue;
      NcclResult state = NcclResult::kSuccess;
      const NcclResult result = nccl_.CommGetAsyncError(handle, &state);
      if (result != NcclResult::kSuccess) state = result;
      if (state == NcclResult::kSuccess || state == NcclResult::kInProgress) continue;
      failure_ = Explain(*entry, handle, state, "data");
    }
  }
  return failure_;
}

NcclHandle NcclGroups::OfCalls(const Entry& entry) {
  return entry.child == nullptr ? entry.handle : entry.child->handle();
}

void NcclGroups::Abort() {
  Fail(absl::CancelledError(absl::StrCat("the NCCL communicators of rank ", self(), " have been aborted")))
      .IgnoreError();
  AbortAll();
}

std::optional<SideBySide> NcclGroups::TakeAborts() {
  const MutexLock lock(&mu_);
  std::vector<std::function<void()>> calls;
  for (const std::unique_ptr<Entry>& entry : entries_) {
    const std::shared_ptr<Child>& child = entry->child != nullptr ? entry->child : entry->aside;
    if (entry->handle == nullptr && child == nullptr) continue;
    calls.emplace_back(
        [device = options_.device, library = options_.library, handle = entry->handle, rank = self(), child] {
          if (handle != nullptr) AbortOne(rank, *device, library->functions, handle);
          if (child == nullptr) return;
          // Aborting the parent has notified the child, so its calls return.
          const NcclHandle blocking = child->TakeWhenFree();
          if (blocking != nullptr) AbortOne(rank, *device, library->functions, blocking);
        });
  }
  if (calls.empty()) return std::nullopt;
  std::optional<SideBySide> aborts(std::in_place, std::move(calls));
  // Takes the handles from the entries only now that no later step can run out of memory, so that each is aborted.
  for (const std::unique_ptr<Entry>& entry : entries_) {
    entry->handle = nullptr;
    entry->child.reset();
    entry->aside.reset();
  }
  return aborts;
}

// ncclCommAbort tells a communicator's kernels to exit, and may then wait for the device. The kernels never exit if
// another communicator's kernel, which has not been told to exit, is running before them. So each communicator is
// aborted on its own thread. The device may also be stuck in the trainer's work; the threads then outlive this object.
// So each thread owns everything that it needs.
void NcclGroups::AbortAll() {
  if (options_.device->is_held()) return;
  std::optional<SideBySide> aborts = TakeAborts();
  if (aborts.has_value())
    CallInTime(*std::move(aborts), options_.device->timeout(), "the job has failed, and NCCL's work");
}

bool NcclGroups::CallInTime(SideBySide calls, absl::Duration timeout, absl::string_view what) {
  if (calls.Run(timeout)) return true;
  options_.device->Abandon(
      absl::StrCat(what, " for rank ", self(), " does not end within ", absl::FormatDuration(timeout)));
  return false;
}

// Finalizes the children on separate threads, because each call blocks until all peers have called. Aborts them if a
// peer does not call.
void NcclGroups::FinalizeChildren() {
  std::vector<std::function<void()>> calls;
  {
    const MutexLock lock(&mu_);
    for (const std::unique_ptr<Entry>& entry : entries_) {
      if (entry->child == nullptr) continue;
      entry->aside = std::move(entry->child);
      calls.emplace_back([child = entry->aside, handle = entry->aside->Enter(), device = options_.device,
                          library = options_.library, rank = self()] {
        LogIfError(rank, device->Call("ending an NCCL communicator", [&](const ronda_cuda_plugin&) {
          if (library->functions.CommFinalize(handle) != NcclResult::kSuccess) return 0;
          child->Take();
          library->functions.CommDestroy(handle);
          return 0;
        }));
        child->Leave();
      });
    }
  }
  if (calls.empty() || SideBySide(std::move(calls)).Run(options_.end_deadline)) return;
  LogIfError(self(), Fail(absl::DeadlineExceededError(
                         absl::StrCat("ending NCCL's communicators has taken rank ", self(), " longer than ",
                                      absl::FormatDuration(options_.end_deadline),
                                      ": a peer has not come to it, or a CUDA graph with their calls exists"))));
}

void NcclGroups::Finalize() {
  if (!failure().ok()) return;
  std::vector<Entry*> ending;
  LogIfError(self(), options_.device->Call("ending NCCL communicators", [&](const ronda_cuda_plugin&) {
    const MutexLock lock(&mu_);
    for (const std::unique_ptr<Entry>& entry : entries_) {
      if (entry->handle == nullptr) continue;
      const NcclResult result = nccl_.CommFinalize(entry->handle);
      if (result == NcclResult::kSuccess || result == NcclResult::kInProgress) ending.push_back(entry.get());
    }
    return 0;
  }));
  std::vector<std::function<void()>> calls;
  for (Entry* entry : ending) {
    const Wait wait = {.doing = "ending the communicator", .limits = {.deadline = options_.end_deadline}};
    if (!AwaitReady(entry, wait).ok()) break;
    const MutexLock lock(&mu_);
    if (entry->handle == nullptr) continue;
    calls.emplace_back([device = options_.device, library = options_.library,
                        handle = std::exchange(entry->handle, nullptr), rank = self()] {
      LogIfError(rank, device->Call("freeing an NCCL communicator", [&](const ronda_cuda_plugin&) {
        library->functions.CommDestroy(handle);
        return 0;
      }));
    });
  }
  if (!calls.empty()) CallInTime(SideBySide(std::move(calls)), options_.end_deadline, "freeing NCCL's communicators");
}

}  // namespace ronda
