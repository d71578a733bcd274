#ifndef RONDA_RUNTIME_COLLECTIVES_MESSAGES_MESSAGE_REDUCE_H_
#define RONDA_RUNTIME_COLLECTIVES_MESSAGES_MESSAGE_REDUCE_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "runtime/collectives/members.h"
#include "runtime/collectives/messages/dissemination.h"
#include "runtime/collectives/messages/message_link.h"
#include "runtime/collectives/messages/page_scratch.h"
#include "runtime/collectives/messages/reduce_regions.h"
#include "runtime/collectives/reduce_arithmetic.h"
#include "runtime/monitor/wait_watch.h"

namespace ronda {

// What long reductions work in, and keep from one to the next.
struct MessageReduceMemory {
  PageScratch contributions;  // to this rank's region
  PageScratch packed;         // this rank's, to the others' regions
  PageScratch results;
  ReduceRegions regions;
  std::vector<char> wants_any;       // by member: whether it receives anything, if not all do
  std::vector<const void*> sources;  // by member
  TransferSet arriving[2];           // contributions, of slices k and k + 1
  TransferSet leaving[2];            // this rank's contributions
  TransferSet delivering[2];
};

// One long reduction, in which each member reduces a region: all send it their contributions to its region, slice by
// slice, in the format of the wire, and it sends the results to all who receive any. While slice k is on its way, slice
// k - 1 is reduced and the results of slice k - 2 arrive.
//
//                    contributions            results
//   all receive all  to equal regions         to all
//   few receive      to equal regions         to those who receive any: no rank has more to reduce than others
//   each a part      to what each receives    to nobody
//
// What lies in memory as it travels is sent from there and received there; all else goes through scratch memory, of a
// few slices a member.
//
// In place is safe: what a slice's results overwrite has been contributed before. Lives as long as the call.
// Thread-compatible.
class MessageReduce {
 public:
  // A slice of all regions together is about `chunk_bytes`, unless there are so many members that messages would become
  // too small. What the arguments refer to must outlive it.
  MessageReduce(const ReduceArithmetic& reduction, const Members& members, size_t chunk_bytes, MessageLink& link,
                Dissemination& exchange, MessageReduceMemory& memory);

  // REQUIRES: this rank is a member. The call has no ballot if packing has effects that a veto would have to undo.
  absl::Status Run();

 private:
  using Range = ReduceRegions::Range;
  enum class Results { kToAll, kToFew, kToNobody };

  // Holds the vote, if there is one, and learns what the others receive, if that is not all.
  absl::Status Announce();
  // Whether the ranks say which elements they receive, or only whether they receive any.
  bool AnnouncesRanges() const;
  size_t WantedBytes() const;
  void WriteWanted(char* block) const;
  // Errors: INTERNAL if a member wants what is not there.
  absl::Status ReadWanted();
  void DecideRegions();
  void AllocateScratch();

  absl::Status Contribute(uint64_t k);
  absl::Status SendContribution(uint64_t k, int receiver);
  absl::Status ReduceSlice(uint64_t k);
  absl::Status ReceiveResults(uint64_t k);
  absl::Status SendResults(uint64_t k);
  absl::Status Finish(uint64_t k);

  // Reduces this rank's slice k to `wire`; nullptr: delivers it.
  void ReduceOwn(uint64_t k, char* wire);
  void Pack(int member, uint64_t k, char* wire) const;
  void Unpack(int member, uint64_t k, const char* wire) const;

  // Granules of a member's region.
  Range SliceOf(int member, uint64_t k) const;
  size_t BytesOf(int member, uint64_t k) const { return SliceOf(member, k).count * granule_bytes_; }
  bool Receives(int member) const;

  // Where a member's slice k lies as it travels, in the tensors; nullptr: nowhere, or not in one piece.
  const char* InputOf(int member, uint64_t k) const;
  char* OutputOf(int member, uint64_t k) const;
  template <typename Address>
  auto InOnePiece(int member, uint64_t k, const Address& address) const;

  // Room in `scratch` for slice k of, or for, a member.
  char* At(const PageScratch& scratch, int member, uint64_t k) const;
  // Where the results of a member's slice k arrive, or are made.
  char* ResultOf(int member, uint64_t k) const;

  const Members& members_;
  const ReduceArithmetic& reduction_;
  const size_t granule_bytes_;
  const size_t chunk_bytes_;
  MessageLink& link_;
  Dissemination& exchange_;
  MessageReduceMemory& memory_;
  Results results_ = Results::kToAll;
  size_t slice_granules_ = 1;
  size_t slice_bytes_ = 0;  // rounded up to cache lines
  uint64_t slices_ = 0;
  RunningCollective running_;
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_COLLECTIVES_MESSAGES_MESSAGE_REDUCE_H_
