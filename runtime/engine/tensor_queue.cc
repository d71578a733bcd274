#include "runtime/engine/tensor_queue.h"

#include <algorithm>
#include <new>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/logging.h"
#include "runtime/base/status_macros.h"

namespace ronda {
namespace {

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

// `status` with the tensor's name in front; without it where there is no memory for that.
absl::Status About(const std::string& name, const absl::Status& status) {
  try {
    return absl::Status(status.code(), absl::StrCat("tensor '", name, "': ", status.message()));
  } catch (const std::bad_alloc&) {
    return status;
  }
}

}  // namespace

std::unique_ptr<TensorEntry> TensorQueue::NewEntry(Submission submission, absl::Time now) const {
  auto entry = std::make_unique<TensorEntry>();
  entry->submission = std::move(submission);
  entry->handle = std::make_shared<Handle>(callbacks_);
  entry->since = now;
  return entry;
}

absl::StatusOr<std::shared_ptr<Handle>> TensorQueue::Add(Submission submission, absl::Time now) {
  std::unique_ptr<TensorEntry> entry = NewEntry(std::move(submission), now);
  std::shared_ptr<Handle> handle = entry->handle;
  MutexLock lock(&mu_);
  RONDA_RETURN_IF_ERROR(refusal_);
  ReserveLocked(1);
  if (const auto refused = InsertLocked(std::move(entry))) return InFlightAlready(refused->submission.request);
  RecordLocked(fresh_.size() - 1);
  return handle;
}

absl::StatusOr<std::vector<std::shared_ptr<Handle>>> TensorQueue::AddAll(std::vector<Submission> submissions,
                                                                         absl::Time now) {
  std::vector<std::unique_ptr<TensorEntry>> entries;
  std::vector<std::shared_ptr<Handle>> handles;
  for (Submission& submission : submissions) {
    entries.push_back(NewEntry(std::move(submission), now));
    handles.push_back(entries.back()->handle);
  }
  MutexLock lock(&mu_);
  RONDA_RETURN_IF_ERROR(refusal_);
  if (const auto* grouped = GroupInFlightLocked(entries)) return GroupInFlightAlready(grouped->submission.request);
  ReserveLocked(entries.size());
  const size_t fresh_before = fresh_.size();
  try {
    const auto refused = InsertAllLocked(std::move(entries));
    if (refused != nullptr) {
      RemoveLocked(fresh_before);
      return InFlightAlready(refused->submission.request);
    }
  } catch (const std::bad_alloc&) {
    RemoveLocked(fresh_before);
    throw;
  }
  RecordLocked(fresh_before);
  return handles;
}

const TensorEntry* TensorQueue::GroupInFlightLocked(absl::Span<const std::unique_ptr<TensorEntry>> entries) const {
  const TensorRequest* checked = nullptr;  // most often all are of one group
  for (const std::unique_ptr<TensorEntry>& entry : entries) {
    const TensorRequest& request = entry->submission.request;
    if (request.group.empty() || (checked != nullptr && InSameGroup(*checked, request))) continue;
    checked = &request;
    for (const auto& [key, other] : in_flight_) {
      if (InSameGroup(other->submission.request, request)) return entry.get();
    }
  }
  return nullptr;
}

void TensorQueue::ReserveLocked(size_t more) {
  const size_t needed = fresh_.size() + more;
  if (needed > fresh_.capacity()) fresh_.reserve(std::max(needed, 2 * fresh_.capacity()));
}

std::unique_ptr<TensorEntry> TensorQueue::InsertLocked(std::unique_ptr<TensorEntry> entry) {
  const auto [it, is_new] = in_flight_.try_emplace(entry->submission.request.key());
  if (!is_new) return entry;
  fresh_.push_back(entry.get());
  it->second = std::move(entry);
  return nullptr;
}

std::unique_ptr<TensorEntry> TensorQueue::InsertAllLocked(std::vector<std::unique_ptr<TensorEntry>> entries) {
  for (std::unique_ptr<TensorEntry>& entry : entries) {
    if (auto refused = InsertLocked(std::move(entry))) return refused;
  }
  return nullptr;
}

void TensorQueue::RecordLocked(size_t first) {
  for (size_t i = first; i < fresh_.size(); ++i) {
    const TensorRequest& request = fresh_[i]->submission.request;
    const FlightKind kind = request.op == OpType::kJoin ? FlightKind::kJoined : FlightKind::kSubmitted;
    flight_->Record(kind, request.op, request.name, TensorBytes(request));
  }
}

void TensorQueue::RemoveLocked(size_t first) {
  for (size_t i = first; i < fresh_.size(); ++i) in_flight_.erase(fresh_[i]->submission.request.key());
  fresh_.resize(first);
}

std::vector<const TensorEntry*> TensorQueue::TakeFresh(absl::Time now) {
  MutexLock lock(&mu_);
  for (TensorEntry* entry : fresh_) entry->taken = now;
  std::vector<const TensorEntry*> taken(fresh_.begin(), fresh_.end());
  fresh_.clear();
  return taken;
}

absl::Time TensorQueue::OldestFresh() const {
  MutexLock lock(&mu_);
  return fresh_.empty() ? absl::InfiniteFuture() : fresh_.front()->since;
}

const TensorEntry* TensorQueue::Earliest(absl::FunctionRef<absl::Time(const TensorEntry&)> time) const {
  MutexLock lock(&mu_);
  const TensorEntry* earliest = nullptr;
  absl::Time earliest_time = absl::InfiniteFuture();
  for (const auto& [key, entry] : in_flight_) {
    const absl::Time of_entry = time(*entry);
    if (earliest != nullptr && of_entry >= earliest_time) continue;
    earliest = entry.get();
    earliest_time = of_entry;
  }
  return earliest;
}

const TensorEntry* TensorQueue::Find(TensorKeyView key) const {
  MutexLock lock(&mu_);
  const auto it = in_flight_.find(key);
  return it == in_flight_.end() ? nullptr : it->second.get();
}

std::unique_ptr<TensorEntry> TensorQueue::Extract(const TensorEntry* entry) {
  MutexLock lock(&mu_);
  const auto it = in_flight_.find(entry->submission.request.key());
  RONDA_CHECK(it != in_flight_.end());
  std::unique_ptr<TensorEntry> owned = std::move(it->second);
  in_flight_.erase(it);
  return owned;
}

void TensorQueue::Complete(const TensorEntry* entry, absl::Status status) {
  const std::unique_ptr<TensorEntry> owned = Extract(entry);
  owned->handle->Complete(std::move(owned->submission.request.name), std::move(status));
}

void TensorQueue::Complete(const TensorEntry* entry, OperationResult result) {
  const std::unique_ptr<TensorEntry> owned = Extract(entry);
  owned->handle->Complete(std::move(owned->submission.request.name), std::move(result));
}

void TensorQueue::Refuse(absl::Status status) {
  MutexLock lock(&mu_);
  if (refusal_.ok()) refusal_ = std::move(status);
}

void TensorQueue::Close(const absl::Status& status) {
  {
    MutexLock lock(&mu_);
    // A failure replaces the polite refusal of a shutdown under way.
    refusal_ = status;
    fresh_.clear();
  }
  while (true) {
    Table::node_type node;
    absl::Status with_name;
    {
      MutexLock lock(&mu_);
      if (in_flight_.empty()) return;
      // Before it is taken out: without memory for the text the entry stays, for the next attempt.
      with_name = About(in_flight_.begin()->second->submission.request.name, status);
      node = in_flight_.extract(in_flight_.begin());
    }
    node.mapped()->handle->Complete(std::move(node.mapped()->submission.request.name), std::move(with_name));
  }
}

bool TensorQueue::empty() const {
  MutexLock lock(&mu_);
  return in_flight_.empty();
}

}  // namespace ronda
