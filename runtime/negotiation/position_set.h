#ifndef RONDA_RUNTIME_NEGOTIATION_POSITION_SET_H_
#define RONDA_RUNTIME_NEGOTIATION_POSITION_SET_H_

#include <cstddef>
#include <cstdint>
#include <vector>

namespace ronda {

// Positions in a group, one bit each; it knows how many they are.
//
// Thread-compatible.
class PositionSet {
 public:
  // Empties it and makes room for the positions 0 to `size` - 1. Keeps its memory.
  void Reset(int size) {
    words_.assign((static_cast<size_t>(size) + 63) / 64, 0);
    count_ = 0;
  }

  bool Contains(int position) const { return (words_[position / 64] >> (position % 64) & 1) != 0; }

  // False if it was there already.
  bool Insert(int position) {
    uint64_t& word = words_[position / 64];
    const uint64_t bit = uint64_t{1} << (position % 64);
    if ((word & bit) != 0) return false;
    word |= bit;
    ++count_;
    return true;
  }

  int count() const { return count_; }

 private:
  std::vector<uint64_t> words_;
  int count_ = 0;
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_NEGOTIATION_POSITION_SET_H_
