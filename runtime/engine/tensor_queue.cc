// SPDX-License-Identifier: Apache-2.0

#include "runtime/engine/tensor_queue.h"

#include <algorithm>
#include <iterator>
#include <new>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/logging.h"
#include "runtime/base/status_macros.h"

namespace ronda {
namespace {

constexpr size_t kCacheLineBytes = 64;
constexpr int kToWrite = 1;

std::string WhereOf(const TensorRequest& request) {
  return request.process_set == kGlobalProcessSet ? "" : absl::StrCat(" of process set ", request.process_set);
}

absl::Status InFlightAlready(const TensorRequest& request) {
  return absl::AlreadyExistsError(absl::StrCat("tensor '", request.name, "'", WhereOf(request),
                                               " is in flight already: wait for its handle before submitting it "
                                               "again, or give the tensors different names"));
}

absl::Status GroupInFlightAlready(const TensorRequest& request) {
  return absl::AlreadyExistsError(absl::StrCat("group '", request.group, "'", WhereOf(request),
                                               " is in flight already: wait for all of its handles before submitting "
                                               "it again, or give the groups different names"));
}

bool InSameGroup(const TensorRequest& a, const TensorRequest& b) {
  return a.group == b.group && a.process_set == b.process_set;
}

}  // namespace

absl::StatusOr<std::shared_ptr<Handle>> TensorQueue::Add(const Submission& submission, absl::Time now,
                                                         const Ready& ready) {
  MutexLock lock(&mu_);
  RONDA_RETURN_IF_ERROR(refusal_);
  ReserveLocked(1);
  Slot& slot = SlotLocked(submission.request.key());
  if (slot.in_flight() && (submission.unnamed_call > 0 || IsFree(slot))) {
    return FollowLocked(submission, ready, now, slot);
  }
  RONDA_RETURN_IF_ERROR(InsertLocked(submission, ready, now, slot));
  RecordLocked(fresh_.size() - 1);
  return fresh_.back()->handle;
}

absl::Status TensorQueue::AddAll(absl::Span<const Submission> submissions, absl::Time now,
                                 std::vector<std::shared_ptr<Handle>>* handles, absl::Span<const Ready> ready) {
  handles->clear();
  handles->reserve(submissions.size());
  MutexLock lock(&mu_);
  RONDA_RETURN_IF_ERROR(refusal_);
  if (const Submission* grouped = GroupInFlightLocked(submissions)) return GroupInFlightAlready(grouped->request);
  ReserveLocked(submissions.size());
  const size_t fresh_before = fresh_.size();
  try {
    if (absl::Status inserted = InsertAllLocked(submissions, ready, now, handles); !inserted.ok()) {
      RemoveAllLocked(submissions, fresh_before, handles);
      return inserted;
    }
  } catch (const std::bad_alloc&) {
    RemoveAllLocked(submissions, fresh_before, handles);
    throw;
  }
  RecordLocked(fresh_before);
  return absl::OkStatus();
}

const Submission* TensorQueue::GroupInFlightLocked(absl::Span<const Submission> submissions) const {
  const TensorRequest* checked = nullptr;  // usually all are in one group
  for (const Submission& submission : submissions) {
    const TensorRequest& request = submission.request;
    if (request.group.empty() || (checked != nullptr && InSameGroup(*checked, request))) continue;
    checked = &request;
    for (const Slot& other : in_flight_) {
      if (!IsFree(other) && InSameGroup(other.submission.request, request)) return &submission;
    }
  }
  return nullptr;
}

void TensorQueue::ReserveLocked(size_t more) {
  const size_t needed = fresh_.size() + follower_count_ + more;
  if (needed > fresh_.capacity()) fresh_.reserve(std::max(needed, 2 * fresh_.capacity()));
}

absl::Status TensorQueue::InsertAllLocked(absl::Span<const Submission> submissions, absl::Span<const Ready> ready,
                                          absl::Time now, std::vector<std::shared_ptr<Handle>>* handles) {
  for (size_t i = 0; i < submissions.size(); ++i) {
    const Ready& own = ready.empty() ? nullptr : ready[i];
    Slot& slot = SlotLocked(submissions[i].request.key());
    if (slot.in_flight() && IsFree(slot)) {
      handles->push_back(FollowLocked(submissions[i], own, now, slot));
    } else {
      RONDA_RETURN_IF_ERROR(InsertLocked(submissions[i], own, now, slot));
      handles->push_back(fresh_.back()->handle);
    }
  }
  return absl::OkStatus();
}

void TensorQueue::RemoveAllLocked(absl::Span<const Submission> submissions, size_t fresh_before,
                                  std::vector<std::shared_ptr<Handle>>* handles) {
  for (size_t i = 0; i < handles->size(); ++i) {
    Slot& slot = *slots_.find(submissions[i].request.key())->second;
    if (slot.followers.empty() || slot.followers.back().handle != (*handles)[i]) continue;
    spare_followers_.splice(spare_followers_.end(), slot.followers, std::prev(slot.followers.end()));
    spare_followers_.back().handle.reset();
    spare_followers_.back().ready.reset();
    follower_count_.fetch_sub(1, std::memory_order_relaxed);
  }
  handles->clear();
  RemoveLocked(fresh_before);
}

absl::Status TensorQueue::InsertLocked(const Submission& submission, const Ready& ready, absl::Time now, Slot& slot) {
  if (slot.in_flight()) return InFlightAlready(submission.request);
  Assign(submission, slot);
  slot.ready = ready;
  slot.since = now;
  slot.popped = absl::InfiniteFuture();
  slot.learned_of = progress_ == nullptr ? 0 : progress_->learned_of();
  slot.handle = MakeHandle(slot);
  ExpectAfterLocked(slot);
  in_flight_.splice(in_flight_.end(), idle_, slot.place);
  most_in_flight_ = std::max(most_in_flight_, in_flight_.size());
  fresh_.push_back(&slot);
  in_flight_count_.store(in_flight_.size(), std::memory_order_relaxed);
  fresh_count_.store(fresh_.size(), std::memory_order_relaxed);
  return absl::OkStatus();
}

std::shared_ptr<Handle> TensorQueue::MakeHandle(const Slot& slot) {
  return std::allocate_shared<Handle>(PoolAllocator<Handle>(handle_memory_.get()), callbacks_, progress_, slot.name);
}

std::shared_ptr<Handle> TensorQueue::FollowLocked(const Submission& submission, const Ready& ready, absl::Time now,
                                                  Slot& slot) {
  if (spare_followers_.empty()) spare_followers_.emplace_back();
  Follower& follower = spare_followers_.front();
  Copy(submission, &follower.submission);
  follower.since = now;
  follower.handle = MakeHandle(slot);
  follower.ready = ready;
  slot.followers.splice(slot.followers.end(), spare_followers_, spare_followers_.begin());
  follower_count_.fetch_add(1, std::memory_order_relaxed);
  return follower.handle;
}

void TensorQueue::AdvanceLocked(Slot& slot) {
  Follower& next = slot.followers.front();
  if (slot.submission.request != next.submission.request) ++slot.version;
  std::swap(slot.submission, next.submission);
  slot.ready = std::move(next.ready);
  slot.since = next.since;
  slot.popped = absl::InfiniteFuture();
  slot.learned_of = progress_ == nullptr ? 0 : progress_->learned_of();
  slot.handle = std::move(next.handle);
  spare_followers_.splice(spare_followers_.end(), slot.followers, slot.followers.begin());
  follower_count_.fetch_sub(1, std::memory_order_relaxed);
  in_flight_.splice(in_flight_.end(), idle_, slot.place);
  fresh_.push_back(&slot);
  in_flight_count_.store(in_flight_.size(), std::memory_order_relaxed);
  fresh_count_.store(fresh_.size(), std::memory_order_relaxed);
  RecordLocked(fresh_.size() - 1);
}

void TensorQueue::Assign(const Submission& submission, Slot& slot) {
  // Raises the version before it copies the request. So if the copy throws, the changed request does not keep the old
  // version.
  if (slot.submission.request != submission.request) ++slot.version;
  Copy(submission, &slot.submission);
}

// Copies the request only if it differs: most submissions have the same request as the last submission of the same
// name.
void TensorQueue::Copy(const Submission& submission, Submission* kept) {
  if (kept->request != submission.request) kept->request = submission.request;
  kept->input = submission.input;
  kept->output = submission.output;
  kept->output_bytes = submission.output_bytes;
  kept->splits = submission.splits;
  kept->stream = submission.stream;
  kept->unnamed_call = submission.unnamed_call;
  kept->error_feedback = submission.error_feedback;
}

TensorQueue::Slot& TensorQueue::SlotLocked(TensorKeyView key) {
  if (likely_ != idle_.end() && likely_->key == key) return *likely_;
  if (const auto found = slots_.find(key); found != slots_.end()) return *found->second;
  if (idle_.size() >= std::max(kMaxIdle, most_in_flight_)) ForgetLocked(idle_.begin());
  SlotList added;
  Slot& slot = added.emplace_back(key);
  slot.place = added.begin();
  slots_.emplace(slot.key, &slot);
  idle_.splice(idle_.end(), added);
  return slot;
}

void TensorQueue::ExpectAfterLocked(const Slot& slot) {
  likely_ = std::next(slot.place);
  if (likely_ == idle_.end()) return;
  const char* const next = reinterpret_cast<const char*>(&*likely_);
  for (size_t at = 0; at < sizeof(Slot); at += kCacheLineBytes) __builtin_prefetch(next + at, kToWrite);
}

void TensorQueue::ForgetLocked(SlotList::iterator idle) {
  if (likely_ == idle) ++likely_;
  slots_.erase(idle->key);
  idle_.erase(idle);
}

void TensorQueue::RecordLocked(size_t first) {
  const uint64_t now = log_->SubmissionTime();
  for (size_t i = first; i < fresh_.size(); ++i) {
    CountStepLocked(*fresh_[i], now);
    log_->Submitted(fresh_[i]->submission.request, now);
  }
}

void TensorQueue::CountStepLocked(Slot& slot, uint64_t now) {
  if (slot.step == step_) {
    ++step_;
    log_->StepEnded(now);
  }
  slot.step = step_;
}

void TensorQueue::RemoveLocked(size_t first) {
  for (size_t i = first; i < fresh_.size(); ++i) RetireLocked(*fresh_[i]);
  fresh_.resize(first);
  fresh_count_.store(first, std::memory_order_relaxed);
}

const std::vector<TensorEntry*>& TensorQueue::HandOverFresh(absl::Time now) {
  MutexLock lock(&mu_);
  handed_over_.assign(fresh_.begin(), fresh_.end());
  for (Slot* slot : fresh_) slot->popped = now;
  fresh_.clear();
  fresh_count_.store(0, std::memory_order_relaxed);
  log_->InFlight(in_flight_.size());
  return handed_over_;
}

std::vector<TensorEntry*> TensorQueue::HandedOver() {
  MutexLock lock(&mu_);
  std::vector<TensorEntry*> taken;
  for (Slot& slot : in_flight_) {
    if (slot.popped != absl::InfiniteFuture()) taken.push_back(&slot);
  }
  return taken;
}

absl::Time TensorQueue::OldestFresh() const {
  if (fresh_count_.load(std::memory_order_relaxed) == 0) return absl::InfiniteFuture();
  MutexLock lock(&mu_);
  return fresh_.empty() ? absl::InfiniteFuture() : fresh_.front()->since;
}

const TensorEntry* TensorQueue::Earliest(absl::FunctionRef<absl::Time(const TensorEntry&)> time) const {
  MutexLock lock(&mu_);
  const TensorEntry* earliest = nullptr;
  absl::Time earliest_time = absl::InfiniteFuture();
  for (const Slot& slot : in_flight_) {
    const absl::Time of_entry = time(slot);
    if (earliest != nullptr && of_entry >= earliest_time) continue;
    earliest = &slot;
    earliest_time = of_entry;
  }
  return earliest;
}

const TensorEntry* TensorQueue::Find(TensorKeyView key) const {
  MutexLock lock(&mu_);
  const auto it = slots_.find(key);
  return it == slots_.end() || !it->second->in_flight() ? nullptr : it->second;
}

absl::Status TensorQueue::Match(const ReceiveMatch& match) {
  MutexLock lock(&mu_);
  const auto refusal = [&] {
    return absl::InternalError(absl::StrCat("the coordinator rank gives '", match.receive, "' the message '",
                                            match.message, "', and the one is not in flight here, or the other is"));
  };
  const auto found = slots_.find({.process_set = match.process_set, .name = match.receive});
  if (found == slots_.end() || !found->second->in_flight()) return refusal();
  Slot& receive = *found->second;  // in flight, so SlotLocked does not forget it
  Slot& message = SlotLocked({.process_set = match.process_set, .name = match.message});
  if (message.in_flight()) return refusal();
  Submission submission = receive.submission;
  submission.request.name = match.message;
  submission.request.root = match.sender;
  Assign(submission, message);
  message.ready = std::move(receive.ready);
  message.since = receive.since;
  message.popped = receive.popped;
  message.reported = receive.reported;
  message.learned_of = receive.learned_of;
  receive.handle->RecordSender(match.sender);
  message.handle = std::move(receive.handle);
  ExpectAfterLocked(message);
  in_flight_.splice(receive.place, idle_, message.place);
  idle_.splice(idle_.end(), in_flight_, receive.place);
  return absl::OkStatus();
}

std::shared_ptr<Handle> TensorQueue::RetireLocked(Slot& slot) {
  RONDA_CHECK(slot.in_flight());
  idle_.splice(idle_.end(), in_flight_, slot.place);
  in_flight_count_.store(in_flight_.size(), std::memory_order_relaxed);
  slot.ready.reset();
  std::shared_ptr<Handle> handle = std::move(slot.handle);
  if (!slot.followers.empty()) {
    AdvanceLocked(slot);
  } else if (TraitsOf(slot.submission.request.op).membership) {
    ForgetLocked(slot.place);
  }
  return handle;
}

void TensorQueue::Complete(const TensorEntry* entry, absl::Status status) {
  std::shared_ptr<Handle> handle;
  std::list<Follower> given_up;
  {
    MutexLock lock(&mu_);
    Slot& slot = SlotOf(entry);
    if (absl::IsDeadlineExceeded(status)) given_up.swap(slot.followers);
    follower_count_.fetch_sub(given_up.size(), std::memory_order_relaxed);
    handle = RetireLocked(slot);
    log_->InFlight(in_flight_.size());
  }
  for (const Follower& follower : given_up) follower.handle->Complete(status);
  handle->Complete(std::move(status));
}

void TensorQueue::CompleteAll(absl::Span<const TensorEntry* const> entries, absl::Span<OperationResult> results) {
  retired_.reserve(entries.size());
  {
    MutexLock lock(&mu_);
    for (const TensorEntry* entry : entries) retired_.push_back(RetireLocked(SlotOf(entry)));
    log_->InFlight(in_flight_.size());
  }
  for (size_t i = 0; i < retired_.size(); ++i) retired_[i]->Complete(std::move(results[i]));
  retired_.clear();
}

void TensorQueue::Refuse(absl::Status status) {
  MutexLock lock(&mu_);
  if (refusal_.ok()) refusal_ = std::move(status);
}

void TensorQueue::Forget(ProcessSetId process_set) {
  MutexLock lock(&mu_);
  for (auto next = idle_.begin(); next != idle_.end();) {
    const auto slot = next++;
    if (slot->key.process_set == process_set) ForgetLocked(slot);
  }
}

bool TensorQueue::has_only_removals() const {
  MutexLock lock(&mu_);
  return std::all_of(in_flight_.begin(), in_flight_.end(),
                     [](const Slot& slot) { return slot.submission.request.op == OpType::kRemoveProcessSet; });
}

void TensorQueue::Close(const absl::Status& status) {
  {
    MutexLock lock(&mu_);
    // During a shutdown, the failure replaces the status of the shutdown.
    refusal_ = status;
    fresh_.clear();
    fresh_count_.store(0, std::memory_order_relaxed);
  }
  while (true) {
    std::shared_ptr<Handle> handle;
    absl::Status with_name;
    {
      MutexLock lock(&mu_);
      if (in_flight_.empty()) return;
      // Makes the text before it removes the entry. If there is no memory for the text, the entry stays in the queue
      // for the next attempt.
      with_name = AboutTensor(*in_flight_.front().name, status);
      handle = RetireLocked(in_flight_.front());
      // A follower may be in flight now, but the engine must not get it.
      fresh_.clear();
      fresh_count_.store(0, std::memory_order_relaxed);
    }
    handle->Complete(std::move(with_name));
  }
}

}  // namespace ronda
