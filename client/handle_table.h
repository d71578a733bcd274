#ifndef RONDA_CLIENT_HANDLE_TABLE_H_
#define RONDA_CLIENT_HANDLE_TABLE_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "client/operation.h"
#include "client/ronda.h"
#include "runtime/base/mutex.h"

namespace ronda {

// The operations that C callers hold, by number. Numbers are never used twice, so one that was released, or that an
// earlier job gave out, cannot reach another operation's handle.
//
// A number is the place of the operation among the slots, and how often that slot has been used: finding it is an array
// access, and a slot that is free again costs no memory. A slot whose uses are exhausted stays empty.
//
// Thread-safe.
class HandleTable {
 public:
  // Keeps `operation` until Remove. Throws std::bad_alloc, also if 2^24 operations are kept already.
  ronda_handle Add(Operation operation);

  // None if `id` was never given out or has been removed.
  Operation Find(ronda_handle id) const;

  // Marks the operation, if it is there, with Operation::NoteOrdered.
  void NoteOrdered(ronda_handle id);

  // What `id` stood for; none as in Find.
  Operation Remove(ronda_handle id);

 private:
  static constexpr int kPlaceBits = 24;
  static constexpr int64_t kMaxUses = INT64_MAX >> kPlaceBits;

  struct Slot {
    int64_t uses = 0;     // this one included
    Operation operation;  // none: free
  };

  static size_t PlaceOf(ronda_handle id) { return static_cast<size_t>(id) & ((size_t{1} << kPlaceBits) - 1); }

  // nullptr if `id` was never given out or has been removed.
  const Slot* SlotLocked(ronda_handle id) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  Slot* SlotLocked(ronda_handle id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  void AddSlotLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  mutable Mutex mu_;
  std::vector<Slot> slots_ ABSL_GUARDED_BY(mu_);
  std::vector<size_t> free_ ABSL_GUARDED_BY(mu_);  // places; has room for all of them
};

}  // namespace ronda

#endif  // RONDA_CLIENT_HANDLE_TABLE_H_
