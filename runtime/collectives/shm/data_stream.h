#ifndef RONDA_RUNTIME_COLLECTIVES_SHM_DATA_STREAM_H_
#define RONDA_RUNTIME_COLLECTIVES_SHM_DATA_STREAM_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace ronda {

// Where the chunks of one collective lie in the stream of data that all ranks go through together.
//
// Every chunk but the last has chunk_bytes. A rank keeps position p of its stream at p modulo the size of its ring, of
// which chunk_bytes is a divisor, and no chunk lies across a multiple of chunk_bytes: so each is in one piece.
struct ChunkSequence {
  uint64_t previous_end;  // of the collective before
  uint64_t begin;
  size_t chunk_bytes;
  uint64_t count;
  uint64_t end;

  uint64_t Begin(uint64_t k) const { return begin + k * chunk_bytes; }
  uint64_t End(uint64_t k) const { return std::min(end, begin + (k + 1) * chunk_bytes); }
};

// Gives each collective of a job its place in the stream. All ranks make the same calls, and so get the same places.
class DataStream {
 public:
  explicit DataStream(size_t chunk_bytes) : chunk_bytes_(chunk_bytes) {}

  size_t chunk_bytes() const { return chunk_bytes_; }

  // For the collectives to come. All ranks make the same call at the same place.
  void set_chunk_bytes(size_t chunk_bytes) { chunk_bytes_ = chunk_bytes; }

  // Room for `bytes` bytes from each rank, in granules that no chunk cuts: chunks then end with less than a granule of
  // waste. Little data lies close together, so that it goes round the whole ring too before it comes to a line that
  // another core has read lately.
  // REQUIRES: bytes is a multiple of granule_bytes, which is at most chunk_bytes().
  ChunkSequence Take(size_t bytes, size_t granule_bytes = 1) {
    const uint64_t previous_end = next_;
    const uint64_t begin = FitsInCurrentChunk(bytes) ? next_ : RoundUp(next_, chunk_bytes_);
    // What fits in one chunk, as most calls do, takes no division.
    const size_t used_bytes = bytes <= chunk_bytes_ ? chunk_bytes_ : chunk_bytes_ - chunk_bytes_ % granule_bytes;
    const uint64_t full_chunks = bytes <= used_bytes ? 0 : (bytes - 1) / used_bytes;
    next_ = begin + full_chunks * chunk_bytes_ + RoundUp(bytes - full_chunks * used_bytes, kLineBytes);
    return {.previous_end = previous_end,
            .begin = begin,
            .chunk_bytes = chunk_bytes_,
            .count = bytes == 0 ? 0 : full_chunks + 1,
            .end = next_};
  }

  // A place for a collective whose data travels elsewhere.
  ChunkSequence TakeLine() {
    const uint64_t begin = next_;
    next_ += kLineBytes;
    return {.previous_end = begin, .begin = begin, .chunk_bytes = chunk_bytes_, .count = 1, .end = next_};
  }

 private:
  static constexpr size_t kLineBytes = 64;

  static uint64_t RoundUp(uint64_t position, size_t multiple) {
    return (position + multiple - 1) / multiple * multiple;
  }
  bool FitsInCurrentChunk(size_t bytes) const { return next_ % chunk_bytes_ + bytes <= chunk_bytes_; }

  size_t chunk_bytes_;
  uint64_t next_ = 0;
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_COLLECTIVES_SHM_DATA_STREAM_H_
