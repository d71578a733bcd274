#ifndef RONDA_CLIENT_NUMBER_SEQUENCE_H_
#define RONDA_CLIENT_NUMBER_SEQUENCE_H_

#include <cstdint>
#include <map>
#include <memory>
#include <set>

#include "runtime/engine/handle.h"

namespace ronda {

// Numbers the operations that callers do not name, barriers for instance, so that the n-th on one rank meets the n-th
// on every other.
//
// A number whose operation failed because some rank did not come in time is given out again: the rank that comes late
// then meets the next operation of those that have waited, instead of one that they have given up.
//
// Thread-compatible.
class NumberSequence {
 public:
  // The number for the next operation.
  uint64_t Next();

  // The operation with the number that Next() has returned is under way. Until then Next() keeps returning it.
  // Allocates nothing: an operation that is under way cannot be taken back.
  // REQUIRES: Next() has been called since the last Take().
  void Take(std::shared_ptr<const Handle> operation);

 private:
  // Notes how operations have ended since.
  void Settle();

  uint64_t next_ = 0;                                            // never given out
  std::set<uint64_t> again_;                                     // to be given out before
  std::map<uint64_t, std::shared_ptr<const Handle>> in_flight_;  // null: returned by Next(), and not taken
};

}  // namespace ronda

#endif  // RONDA_CLIENT_NUMBER_SEQUENCE_H_
