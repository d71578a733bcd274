// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_RUNTIME_COLLECTIVES_PEER_PEER_WORDS_H_
#define RONDA_RUNTIME_COLLECTIVES_PEER_PEER_WORDS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/base/unique_fd.h"
#include "runtime/cuda/device.h"
#include "runtime/cuda/shared_memory.h"
#include "runtime/shm/shm_file.h"

namespace ronda {

// Words of 32 bits in the host's memory, by which the streams of a group's members meet. All members map the same
// memory, and their devices read and write it.
//
// Member w has a row of words, for which only the stream of w waits: for each member q, the number of the last meeting
// to which the stream of q has come, and one word that is 1 if another member has failed. Because the rows are
// separate, a member can end the waits of its own stream, and the streams of the other members go on waiting. The
// numbers of meetings grow by 1, and are compared as cyclic numbers.
//
// **Why the memory of the other members is complete after a meeting.** The members only read the memory of other
// members; each writes its own.
// 1. The stream of q writes its words after its earlier work. The write has the default flag, so the driver puts a
//    memory fence in front of it, "which has similar semantics to __threadfence_system() but is scoped to the stream"
//    (cuda.h, CU_STREAM_WRITE_VALUE_DEFAULT). So all results of the stream are visible to all devices before the word.
// 2. Work behind a wait of the stream of w begins after the wait (cuda.h, cuStreamWaitValue32). A kernel begins without
//    old data in its caches of level 1. Caches of level 2 belong to the memory's device, not to the reader's.
// 3. The same memory is mapped at several addresses. CUDA guarantees that a grid sees writes by another address if the
//    writing grid has completed before the reading grid begins (CUDA programming guide, "Virtual Aliasing Support").
//    That is the case, because no kernel waits for a word, only streams wait.
// 4. CU_STREAM_WAIT_VALUE_FLUSH is not needed. It is for writes that come to the reader's device from outside, and no
//    member writes to the memory of another one.
//
// **Why a failed member gives no wrong number to others.** When a member ends its own waits, its stream goes on with
// incomplete data, and writes the words of later meetings. So the member first sets the failure words of the others.
// At each meeting a stream waits for the words of all members. Then it waits until its own failure word is 0, which is
// immediately the case if no other member has failed. If a
// failed member wrote its word after its failure, the failure word is already 1. So the stream waits there for ever,
// and does not use the incomplete data. A failed member also does not wait for the others any more, and may overwrite a
// pad that another stream is reading. So a stream checks its failure word again after the last read of each call.
//
// Thread-safe.
class PeerWords {
 public:
  // Returns a file with the words of `members` members, which are 0. Errors: the errors of the system.
  static absl::StatusOr<UniqueFd> CreateFile(int members);

  // Maps the file for member `self`, whose device is `device`. The device must outlive the words.
  // Errors: the errors of the system and of the device.
  static absl::StatusOr<std::unique_ptr<PeerWords>> Map(Device* device, const UniqueFd& file, int members, int self);

  // Keeps the memory mapped if the device has been abandoned, because the device may still use it.
  ~PeerWords();

  // Appends the operations of meeting number `meeting` to `ops`: AddArrival the writes, AddWaits the waits.
  void AddArrival(uint32_t meeting, std::vector<ronda_cuda_word_op>* ops) const;
  void AddWaits(uint32_t meeting, std::vector<ronda_cuda_word_op>* ops) const;
  // Appends a wait until this member's failure word is 0.
  void AddFailureCheck(std::vector<ronda_cuda_word_op>* ops) const;

  // Records that this member has put its arrival at a meeting on its stream. HasLaunched returns whether `member` has.
  void RecordLaunch(uint32_t meeting);
  bool HasLaunched(int member, uint32_t meeting) const;

  // Holds the other members' streams at their next meeting, until their own failure.
  void ReportFailure();

  // Ends the waits of this member's stream up to meeting number `last`. Meanwhile the streams of the others may still
  // write lower numbers, so the caller repeats this until the stream has finished.
  void EndWaits(uint32_t last);

 private:
  PeerWords(Device* device, std::unique_ptr<ShmMapping> mapping, std::unique_ptr<RegisteredMemory> registered,
            int members, int self);

  size_t ArrivalOffset(int waiter, int member) const;
  size_t FailureOffset(int waiter) const { return ArrivalOffset(waiter, members_); }
  size_t LaunchOffset(int member) const;
  uint32_t* OnHost(size_t offset) const;
  void* OnDevice(size_t offset) const { return registered_->on_device() + offset; }

  Device* const device_;
  const std::unique_ptr<ShmMapping> mapping_;
  std::unique_ptr<RegisteredMemory> registered_;  // ends before the mapping
  const int members_;
  const int self_;
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_COLLECTIVES_PEER_PEER_WORDS_H_
