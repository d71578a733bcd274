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

// 32-bit words in host memory through which the streams of a group's members meet. All members map the same memory, and
// their devices read and write it.
//
// Member w has a row of words on which only w's stream waits: for each member q, the number of the last meeting at
// which q's stream has arrived, and one word that is 1 if another member has failed. Because each member has its own
// row, a member can end the waits of its own stream while the other members' streams keep waiting. Meeting numbers
// increase by 1, and are compared modulo 2^32.
//
// **Why other members' memory is complete after a meeting.** Members only read other members' memory, and write their
// own.
// 1. The stream of q writes its words after its earlier work. The write has the default flag, so the driver precedes it
//    with a memory fence, "which has similar semantics to __threadfence_system() but is scoped to the stream" (cuda.h,
//    CU_STREAM_WRITE_VALUE_DEFAULT). So all results of the stream become visible to all devices before the word.
// 2. Work after a wait on w's stream starts after the wait (cuda.h, cuStreamWaitValue32). A kernel starts without stale
//    data in its L1 caches. L2 caches belong to the memory's device, not to the reader's.
// 3. The same memory is mapped at several addresses. CUDA guarantees that a grid sees writes through another address if
//    the writing grid has completed before the reading grid starts (CUDA programming guide, "Virtual Aliasing
//    Support"). That is the case, because only streams wait for words, not kernels.
// 4. CU_STREAM_WAIT_VALUE_FLUSH is unnecessary. It is for writes to the reader's device from outside, and no member
//    writes to another member's memory.
//
// **Why other members never use a failed member's incomplete data.** When a member ends its own waits, its stream
// continues with incomplete data, and writes the words of later meetings. So the member first sets the others' failure
// words. At each meeting, a stream waits for the words of all members, and then until its failure word is 0, which it
// already is if no other member has failed. If a failed member has written its word after its failure, the failure word
// is already 1. So the stream blocks there for ever, and does not use the incomplete data. A failed member also no
// longer waits for the others, and may overwrite its pad while another stream is reading it. So a stream checks its
// failure word again after the last read of each call.
//
// Thread-safe.
class PeerWords {
 public:
  // Returns a file with the words of `members` members, initially 0. Errors: system errors.
  static absl::StatusOr<UniqueFd> CreateFile(int members);

  // Maps the file for member `self` with device `device`, which must outlive the words.
  // Errors: system errors; device errors.
  static absl::StatusOr<std::unique_ptr<PeerWords>> Map(Device* device, const UniqueFd& file, int members, int self);

  // Keeps the memory mapped if the device has been abandoned, because the device may still use it.
  ~PeerWords();

  // Append to `ops` the writes (AddArrival) and the waits (AddWaits) of meeting number `meeting`.
  void AddArrival(uint32_t meeting, std::vector<ronda_cuda_word_op>* ops) const;
  void AddWaits(uint32_t meeting, std::vector<ronda_cuda_word_op>* ops) const;
  // Appends a wait until this member's failure word is 0.
  void AddFailureCheck(std::vector<ronda_cuda_word_op>* ops) const;

  // Records that this member has enqueued its arrival at a meeting. HasLaunched() returns whether `member` has.
  void RecordLaunch(uint32_t meeting);
  bool HasLaunched(int member, uint32_t meeting) const;

  // Blocks the other members' streams at their next meeting, until they fail too.
  void ReportFailure();

  // Ends the waits of this member's stream up to meeting number `last`. The others' streams may still overwrite this
  // with lower numbers, so the caller must repeat it until the stream has finished.
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
  std::unique_ptr<RegisteredMemory> registered_;  // must be destroyed before the mapping
  const int members_;
  const int self_;
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_COLLECTIVES_PEER_PEER_WORDS_H_
