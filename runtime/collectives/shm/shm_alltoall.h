#ifndef RONDA_RUNTIME_COLLECTIVES_SHM_SHM_ALLTOALL_H_
#define RONDA_RUNTIME_COLLECTIVES_SHM_SHM_ALLTOALL_H_

#include <cstdint>

#include "absl/status/status.h"
#include "runtime/collectives/communicator.h"
#include "runtime/collectives/members.h"
#include "runtime/collectives/shm/chunk_sync.h"
#include "runtime/collectives/shm/data_stream.h"
#include "runtime/collectives/shm/stream_writer.h"

namespace ronda {

// One alltoall through shared memory.
//
// Every chunk of a sender carries a slice of each of its pieces, in proportion to their lengths, one slice after the
// other in the order of the receivers: so all receivers have something to do all the time, however unequal the pieces.
// What a rank sends to itself does not go through its ring.
//
// Lives as long as the call. Thread-compatible.
class ShmAlltoall {
 public:
  // Takes its place in `stream`.
  ShmAlltoall(const AlltoallCall& call, const Members& members, DataStream& stream, ChunkSync& sync,
              StreamWriter& writer);

  // REQUIRES: this rank is a member.
  absl::Status Run();

  // Where the next collective begins in the stream.
  uint64_t end() const { return chunks_.end; }

 private:
  // Bytes of a piece that one chunk carries.
  struct Slice {
    size_t begin;
    size_t bytes;
  };

  size_t LongestRow() const;
  size_t PieceBytes(int sender, int receiver) const { return call_.bytes[sender * members_.size() + receiver]; }
  // Bytes of the piece that go through the ring.
  size_t StreamedBytes(int sender, int receiver) const { return sender == receiver ? 0 : PieceBytes(sender, receiver); }
  Slice SliceOf(int sender, int receiver, uint64_t k) const;
  // How far behind the beginning of chunk k the slice for `receiver` begins.
  size_t OffsetInChunk(int sender, int receiver, uint64_t k) const;

  void CopyOwnPiece();
  absl::Status SendChunk(uint64_t k);
  absl::Status TakeChunk(uint64_t k);

  const AlltoallCall& call_;
  const Members members_;
  const ChunkSequence chunks_;
  ChunkSync& sync_;
  StreamWriter& writer_;
  RunningCollective running_;
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_COLLECTIVES_SHM_SHM_ALLTOALL_H_
