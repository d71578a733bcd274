#include "client/operation.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <new>
#include <numeric>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/cpu/convert.h"
#include "runtime/base/status_macros.h"

namespace ronda {

absl::Status Operation::Wait() const {
  RONDA_RETURN_IF_ERROR(handle_->Wait());
  return Checked();
}

absl::Status Operation::OrderBefore(void* stream) const {
  RONDA_RETURN_IF_ERROR(handle_->OrderBefore(stream));
  return Checked();
}

absl::Status Operation::Checked() const {
  return interpretation_ == nullptr ? absl::OkStatus() : interpretation_->Check(handle_->result());
}

bool Operation::HasOutput() const { return TraitsOf(op_).by_rows; }

bool Operation::Reduces() const { return TraitsOf(op_).reduces; }

Output Operation::output() const {
  const OperationResult& result = handle_->result();
  const RowCounts& rows = result.first_dims;
  Output output{.data = result.rows(), .rows = std::accumulate(rows.begin(), rows.end(), int64_t{0})};
  const FirstDimension meaning = TraitsOf(op_).first_dimension;
  if (meaning == FirstDimension::kGathered || meaning == FirstDimension::kLocal) output.rows_per_member = rows;
  return interpretation_ == nullptr ? output : interpretation_->Read(result, output);
}

void HandleTable::AddSlotLocked() {
  if (slots_.size() >> kIndexBits != 0) throw std::bad_alloc();
  if (free_.capacity() <= slots_.size()) free_.reserve(std::max<size_t>(64, 2 * slots_.size()));
  slots_.emplace_back();
  free_.push_back(slots_.size() - 1);
}

void HandleTable::Reserve(size_t count) {
  MutexLock lock(&mu_);
  while (free_.size() < reserved_ + count) AddSlotLocked();
  reserved_ += count;
}

void HandleTable::Unreserve(size_t count) {
  MutexLock lock(&mu_);
  reserved_ -= count;
}

ronda_handle HandleTable::Add(Operation operation) {
  MutexLock lock(&mu_);
  if (reserved_ > 0) {
    --reserved_;
  } else if (free_.empty()) {
    AddSlotLocked();
  }
  const size_t index = free_.back();
  free_.pop_back();
  Slot& slot = slots_[index];
  slot.operation = std::move(operation);
  return ++slot.uses << kIndexBits | static_cast<int64_t>(index);
}

const HandleTable::Slot* HandleTable::SlotLocked(ronda_handle id) const {
  const size_t index = IndexOf(id);
  return index < slots_.size() && slots_[index].uses == id >> kIndexBits ? &slots_[index] : nullptr;
}

HandleTable::Slot* HandleTable::SlotLocked(ronda_handle id) {
  // Not as_const(), through which clang does not see that it is the same mutex.
  return const_cast<Slot*>(static_cast<const HandleTable*>(this)->SlotLocked(id));
}

Operation HandleTable::Find(ronda_handle id) const {
  MutexLock lock(&mu_);
  const Slot* const slot = SlotLocked(id);
  return slot == nullptr ? Operation() : slot->operation;
}

void HandleTable::NoteOrdered(ronda_handle id) {
  MutexLock lock(&mu_);
  Slot* const slot = SlotLocked(id);
  if (slot != nullptr) slot->operation.NoteOrdered();
}

Operation HandleTable::Remove(ronda_handle id) {
  MutexLock lock(&mu_);
  Slot* const slot = SlotLocked(id);
  if (slot == nullptr) return Operation();
  if (slot->operation.exists() && slot->uses < kMaxUses) free_.push_back(IndexOf(id));
  return std::exchange(slot->operation, Operation());
}

absl::StatusOr<std::unique_ptr<ObjectBroadcast::Plan>> ObjectBroadcast::Prepare(std::shared_ptr<const Group> members,
                                                                                RankId rank, Submission* object) {
  TensorRequest& request = object->request;
  const std::string what = absl::StrCat("broadcast_object '", request.name, "'");
  if (!members->Contains(request.root)) {
    return absl::InvalidArgumentError(absl::StrCat(what, ": root ", request.root, " is not in process set ",
                                                   request.process_set, ": name one of its ranks"));
  }
  auto plan = std::make_unique<Plan>(
      Plan{.name = request.name, .root = request.root, .members = std::move(members), .contribution = {}});
  const int64_t size = request.shape.front();
  if (request.root == rank) {
    if (size > 0 && object->input == nullptr) {
      return absl::InvalidArgumentError(absl::StrCat(what, ": data is NULL, but there are ", size, " bytes"));
    }
    plan->contribution.assign(static_cast<const char*>(object->input), static_cast<size_t>(size));
    plan->contribution.push_back('\0');
  }
  object->input = plan->contribution.data();
  request.shape = {static_cast<int64_t>(plan->contribution.size())};
  request.root = 0;  // an allgather has none
  return plan;
}

absl::Status ObjectBroadcast::Check(const OperationResult& result) const {
  const RowCounts& sizes = result.first_dims;
  for (int i = 0; i < plan_->members->size(); ++i) {
    const RankId member = (*plan_->members)[i];
    if ((sizes[i] > 0) == (member == plan_->root)) continue;
    return absl::FailedPreconditionError(absl::StrCat(
        "broadcast_object '", plan_->name, "': root is ", plan_->root, " on this rank, but rank ", member,
        member == plan_->root ? " sent nothing: it has joined, or has another root" : " takes itself for the root",
        "; pass the same root on every rank"));
  }
  return absl::OkStatus();
}

Output ObjectBroadcast::Read(const OperationResult&, Output plain) const {
  --plain.rows;  // the root's additional byte, which is the last
  plain.rows_per_member = {};
  return plain;
}

Output SparseAverage::Read(const OperationResult& result, Output plain) const {
  const size_t count = static_cast<size_t>(plain.rows * row_);
  MutexLock lock(&mu_);
  if (averages_.empty()) {
    averages_.resize(count * SizeOf(dtype_));
    kernels::Convert(plain.data, dtype_, averages_.data(), dtype_, count, {.divisor = result.number});
  }
  plain.data = averages_.data();
  return plain;
}

}  // namespace ronda
