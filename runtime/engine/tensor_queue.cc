#include "runtime/engine/tensor_queue.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/logging.h"

namespace ronda {

absl::StatusOr<std::shared_ptr<Handle>> TensorQueue::Add(Submission submission, absl::Time now) {
  auto entry = std::make_unique<TensorEntry>();
  entry->submission = std::move(submission);
  entry->handle = std::make_shared<Handle>();
  entry->since = now;
  std::shared_ptr<Handle> handle = entry->handle;

  MutexLock lock(&mu_);
  if (!refusal_.ok()) return refusal_;
  const std::string& name = entry->submission.request.name;
  const auto [it, is_new] = in_flight_.try_emplace(name);
  if (!is_new) {
    return absl::AlreadyExistsError(absl::StrCat("tensor '", name,
                                                 "' is in flight already: wait for its handle before submitting it "
                                                 "again, or give the tensors different names"));
  }
  fresh_.push_back(entry.get());
  it->second = std::move(entry);
  return handle;
}

std::vector<const TensorEntry*> TensorQueue::TakeFresh() {
  MutexLock lock(&mu_);
  return std::exchange(fresh_, {});
}

absl::Time TensorQueue::OldestFresh() const {
  MutexLock lock(&mu_);
  return fresh_.empty() ? absl::InfiniteFuture() : fresh_.front()->since;
}

const TensorEntry* TensorQueue::Oldest() const {
  MutexLock lock(&mu_);
  const TensorEntry* oldest = nullptr;
  for (const auto& [name, entry] : in_flight_) {
    if (oldest == nullptr || entry->since < oldest->since) oldest = entry.get();
  }
  return oldest;
}

const TensorEntry* TensorQueue::Find(absl::string_view name) const {
  MutexLock lock(&mu_);
  const auto it = in_flight_.find(name);
  return it == in_flight_.end() ? nullptr : it->second.get();
}

std::unique_ptr<TensorEntry> TensorQueue::Extract(absl::string_view name) {
  MutexLock lock(&mu_);
  const auto it = in_flight_.find(name);
  RONDA_CHECK(it != in_flight_.end());
  std::unique_ptr<TensorEntry> entry = std::move(it->second);
  in_flight_.erase(it);
  return entry;
}

void TensorQueue::Complete(absl::string_view name, absl::Status status) {
  Extract(name)->handle->Complete(std::move(status));
}

void TensorQueue::Complete(absl::string_view name, OperationResult result) {
  Extract(name)->handle->Complete(std::move(result));
}

void TensorQueue::Refuse(absl::Status status) {
  MutexLock lock(&mu_);
  if (refusal_.ok()) refusal_ = std::move(status);
}

void TensorQueue::Close(const absl::Status& status) {
  Table abandoned;
  {
    MutexLock lock(&mu_);
    // A failure replaces the polite refusal of a shutdown under way.
    refusal_ = status;
    fresh_.clear();
    abandoned = std::exchange(in_flight_, {});
  }
  for (const auto& [name, entry] : abandoned) {
    entry->handle->Complete(absl::Status(status.code(), absl::StrCat("tensor '", name, "': ", status.message())));
  }
}

bool TensorQueue::empty() const {
  MutexLock lock(&mu_);
  return in_flight_.empty();
}

}  // namespace ronda
