// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_TESTS_TESTING_FAKE_NCCL_COMMUNICATOR_H_
#define RONDA_TESTS_TESTING_FAKE_NCCL_COMMUNICATOR_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "kernels/dtype.h"
#include "runtime/base/mutex.h"
#include "runtime/collectives/nccl/nccl_library.h"
#include "tests/testing/fake_nccl/device_turns.h"
#include "tests/testing/fake_nccl/fake_nccl.h"
#include "tests/testing/fake_nccl/mailboxes.h"

namespace ronda::testing {

inline constexpr int kFakeNcclVersion = 22809;  // unless a fault sets another

DType DTypeOf(NcclDataType type);

// One call to NCCL. RunOperations() dereferences the pointers as they are.
struct NcclOperation {
  enum class Kind : uint8_t {
    kAllReduce,
    kBroadcast,
    kAllGather,
    kReduceScatter,
    kSend,
    kRecv,
    kReduce
  } kind = Kind::kSend;
  uint64_t path = 0;  // an encoded NcclPath
  const void* input = nullptr;
  void* output = nullptr;
  size_t count = 0;
  NcclDataType type = NcclDataType::kInt8;
  NcclRedOp op = NcclRedOp::kSum;
  double factor = 1;          // by which the rank's elements are multiplied before a sum
  int peer = 0;               // the peer of a send or receive, or the root
  bool is_symmetric = false;  // both buffers are in symmetric windows
};

// Runs a rank's group: first all sends and receives at the same time, then the collectives one after the other. Returns
// false if `gives_up` is set before the end.
bool RunOperations(const std::vector<NcclOperation>& operations, Mailboxes& mailboxes, int rank, int ranks,
                   const std::atomic<bool>& gives_up);

// A rank's communicator. The object lives until its work on the streams has ended.
//
// If the communicator is blocking, the call itself enqueues a group on its stream. Before that, the first group of each
// kind with a collective waits until all ranks have submitted such a group, or the communicator is aborted. NCCL waits
// in the same way to connect the ranks.
//
// Thread-safe.
class FakeNcclCommunicator : public std::enable_shared_from_this<FakeNcclCommunicator> {
 public:
  enum class Calls : uint8_t { kDoNotBlock, kBlock };
  // `is_aborted` is the abort flag, which several communicators can share.
  FakeNcclCommunicator(std::shared_ptr<Mailboxes> mailboxes, int rank, int ranks, const fake_nccl_faults& faults,
                       const fake_nccl_cuda& cuda, int device, Calls calls = Calls::kDoNotBlock,
                       std::shared_ptr<std::atomic<bool>> is_aborted = std::make_shared<std::atomic<bool>>(false));

  int rank() const { return rank_; }
  int ranks() const { return ranks_; }
  int device() const { return device_; }

  // Implements ncclCommGetAsyncError. It also enqueues waiting groups on their streams.
  NcclResult Progress();

  // Returns ncclSuccess if the communicator can be used. If its state is ncclInProgress, reports the misuse and returns
  // ncclInvalidArgument.
  NcclResult EnsureReady();

  NcclResult BeginRegistration();

  int version() const { return faults_.version == 0 ? kFakeNcclVersion : faults_.version; }
  // Returns whether the communicator supports windows.
  bool HasWindows() const { return !HasFault(faults_.no_windows); }
  // Waits until all ranks register a window. The communicator must be blocking. Reports windows of different sizes.
  NcclResult MeetForWindow(size_t bytes);
  // Returns whether the communicator has work on a stream.
  bool IsRunning() const { return running_.load() > 0; }

  // Begins to create a child that has all ranks. When the child is complete, a later call of Progress() calls `made`.
  // With kResources, the child shares this communicator's abort flag.
  enum class Shares : uint8_t { kNothing, kResources };
  NcclResult Split(Shares shares, Calls calls, std::function<void(std::shared_ptr<FakeNcclCommunicator>)> made);

  // Gives a thread exclusive use of the communicator, as NCCL requires, from the thread's first operation to the end of
  // the group. Returns false if another thread is using the communicator.
  bool BeginUse() {
    std::thread::id nobody;
    return user_.compare_exchange_strong(nobody, std::this_thread::get_id()) || nobody == std::this_thread::get_id();
  }
  void EndUse() { user_.store(std::thread::id()); }

  // Returns whether a thread is in a blocking call. The communicator must not be freed while the thread uses it.
  bool IsOccupied() const { return occupants_.load() > 0; }
  // Returns the number of threads in blocking calls of all communicators in this process.
  static int ThreadsInCalls() { return all_occupants_.load(); }

  // Submits a group. If the communicator does not block, the next call of Progress() enqueues the group on the stream.
  NcclResult Submit(std::vector<NcclOperation> group, void* stream);
  NcclResult Finalize();
  void Abort();
  // Waits until no stream has work of the communicator. ncclCommAbort does this before it frees memory.
  void AwaitStreams();
  std::string last_error();

 private:
  struct Work {
    std::shared_ptr<FakeNcclCommunicator> communicator;  // keeps it alive, and with it the memory that peers use
    std::vector<NcclOperation> operations;
    void* stream;
    DeviceTurns::Place turn = {};
  };

  // Returns why NCCL would reject the ranks' devices, or "" if it would accept them.
  std::string ObjectionToDevices() const;
  // Enqueues a group on its stream.
  bool Enqueue(std::unique_ptr<Work> work) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Adds a group to the graph that is being captured from the stream. Each run of the graph launches the group.
  bool Capture(std::unique_ptr<Work> work);
  static void RunCaptured(void* work);
  NcclResult SubmitAndWait(std::unique_ptr<Work> work);
  // If this is the first group of its kind, and has a collective, waits until all ranks have submitted such a group.
  // Returns false if the communicator is aborted.
  bool AwaitPeers(const std::vector<NcclOperation>& group);
  template <typename Condition>
  bool AwaitUnlessAborted(const Condition& condition) const;
  void WakeUp();
  void Enter() {
    occupants_.fetch_add(1);
    all_occupants_.fetch_add(1);
  }
  void Leave() {
    all_occupants_.fetch_sub(1);
    occupants_.fetch_sub(1);
  }
  static void RunOnStream(void* work);
  void Run(DeviceTurns::Place turn, std::vector<NcclOperation> operations);
  // Returns whether the group runs. A fault can prevent that.
  bool PassFaults(size_t operations);
  void WaitForAbort();
  void Fail(const std::string& error);
  // Returns whether streams or graphs hold work of the communicator. NCCL waits for both before it finalizes a
  // communicator.
  bool IsUsed() const { return running_.load() > 0 || captured_.load() > 0; }
  bool HasFault(int fault) const { return fault != 0 && (faults_.rank < 0 || faults_.rank == rank_); }

  const std::shared_ptr<Mailboxes> mailboxes_;
  const int rank_;
  const int ranks_;
  const fake_nccl_faults faults_;
  const fake_nccl_cuda cuda_;
  const int device_;
  DeviceTurns& turns_;
  const Calls calls_;
  const std::shared_ptr<std::atomic<bool>> is_aborted_;
  std::atomic<int> running_{0};          // groups on streams
  std::atomic<int> captured_{0};         // groups in graphs that exist
  std::atomic<std::thread::id> user_{};  // the thread that uses it, if any
  std::atomic<int> occupants_{0};        // threads in calls that block
  static inline std::atomic<int> all_occupants_{0};
  Mutex mu_;
  CondVar aborted_;
  bool is_finalized_ ABSL_GUARDED_BY(mu_) = false;
  int operations_ ABSL_GUARDED_BY(mu_) = 0;  // that have begun
  std::deque<std::unique_ptr<Work>> waiting_ ABSL_GUARDED_BY(mu_);
  std::set<std::string> connected_ ABSL_GUARDED_BY(mu_);  // kinds of groups
  int splits_ ABSL_GUARDED_BY(mu_) = 0;
  std::vector<std::weak_ptr<FakeNcclCommunicator>> children_ ABSL_GUARDED_BY(mu_);
  std::shared_ptr<FakeNcclCommunicator> unborn_ ABSL_GUARDED_BY(mu_);
  std::function<void(std::shared_ptr<FakeNcclCommunicator>)> made_ ABSL_GUARDED_BY(mu_);
  std::string error_ ABSL_GUARDED_BY(mu_);
};

}  // namespace ronda::testing

#endif  // RONDA_TESTS_TESTING_FAKE_NCCL_COMMUNICATOR_H_
