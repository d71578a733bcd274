#include "client/handle_table.h"

#include <algorithm>
#include <new>
#include <utility>

namespace ronda {

void HandleTable::AddSlotLocked() {
  if (slots_.size() >> kPlaceBits != 0) throw std::bad_alloc();
  if (free_.capacity() <= slots_.size()) free_.reserve(std::max<size_t>(64, 2 * slots_.size()));
  slots_.emplace_back();
  free_.push_back(slots_.size() - 1);
}

ronda_handle HandleTable::Add(Operation operation) {
  MutexLock lock(&mu_);
  if (free_.empty()) AddSlotLocked();
  const size_t place = free_.back();
  free_.pop_back();
  Slot& slot = slots_[place];
  slot.operation = std::move(operation);
  return ++slot.uses << kPlaceBits | static_cast<int64_t>(place);
}

const HandleTable::Slot* HandleTable::SlotLocked(ronda_handle id) const {
  const size_t place = PlaceOf(id);
  return place < slots_.size() && slots_[place].uses == id >> kPlaceBits ? &slots_[place] : nullptr;
}

HandleTable::Slot* HandleTable::SlotLocked(ronda_handle id) {
  return const_cast<Slot*>(std::as_const(*this).SlotLocked(id));
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
  if (slot->operation.exists() && slot->uses < kMaxUses) free_.push_back(PlaceOf(id));
  return std::exchange(slot->operation, Operation());
}

}  // namespace ronda
