#ifndef RONDA_TESTS_TESTING_FAKE_NCCL_COMMUNICATOR_H_
#define RONDA_TESTS_TESTING_FAKE_NCCL_COMMUNICATOR_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "kernels/dtype.h"
#include "runtime/base/mutex.h"
#include "runtime/collectives/nccl/nccl_library.h"
#include "tests/testing/fake_nccl/device_turns.h"
#include "tests/testing/fake_nccl/fake_nccl.h"
#include "tests/testing/fake_nccl/mailboxes.h"

namespace ronda::testing {

DType DTypeOf(NcclDataType type);

// One call of NCCL's. The device uses the pointers as they are.
struct NcclOperation {
  enum class Kind : uint8_t { kAllReduce, kBroadcast, kAllGather, kReduceScatter, kSend, kRecv } kind = Kind::kSend;
  uint64_t path = 0;  // of an NcclPath
  const void* input = nullptr;
  void* output = nullptr;
  size_t count = 0;
  NcclDataType type = NcclDataType::kInt8;
  NcclRedOp op = NcclRedOp::kSum;
  int peer = 0;  // or root
};

// Carries out what one rank has grouped: sends and receives all at once, then the collectives one after the other.
// Returns false if it gave up.
bool RunOperations(const std::vector<NcclOperation>& operations, Mailboxes& mailboxes, int rank, int ranks,
                   const std::atomic<bool>& gives_up);

// One rank's side of a communicator. Lives until its work has left the streams.
//
// Thread-safe.
class FakeNcclCommunicator : public std::enable_shared_from_this<FakeNcclCommunicator> {
 public:
  FakeNcclCommunicator(std::shared_ptr<Mailboxes> mailboxes, int rank, int ranks, const fake_nccl_faults& faults,
                       const fake_nccl_cuda& cuda, int device);

  int rank() const { return rank_; }
  int ranks() const { return ranks_; }

  // ncclCommGetAsyncError: hands on what waits for its stream, too.
  NcclResult Progress();

  // ncclSuccess, or, as for every use of a communicator that is ncclInProgress, ncclInvalidArgument and a report.
  NcclResult EnsureReady();

  NcclResult BeginRegistration();

  // Queues a group, which the next Progress puts onto the stream.
  NcclResult Submit(std::vector<NcclOperation> group, void* stream);
  NcclResult Finalize();
  void Abort();
  // As ncclCommAbort does before it frees anything: returns when no stream has work of the communicator any more.
  void AwaitStreams();
  std::string last_error();

 private:
  struct Work {
    std::shared_ptr<FakeNcclCommunicator> communicator;  // keeps it, and thus the memory that peers use
    std::vector<NcclOperation> operations;
    void* stream;
    DeviceTurns::Place turn = {};
  };

  static void RunOnStream(void* work);
  void Run(DeviceTurns::Place turn, std::vector<NcclOperation> operations);
  // Whether the group is to be carried out: false if a fault has kept it.
  bool PassFaults(size_t operations);
  void WaitForAbort();
  void Fail(const std::string& error);
  bool HasFault(int fault) const { return fault != 0 && (faults_.rank < 0 || faults_.rank == rank_); }

  const std::shared_ptr<Mailboxes> mailboxes_;
  const int rank_;
  const int ranks_;
  const fake_nccl_faults faults_;
  const fake_nccl_cuda cuda_;
  DeviceTurns& turns_;
  std::atomic<bool> is_aborted_{false};
  std::atomic<int> running_{0};  // groups on streams
  Mutex mu_;
  CondVar aborted_;
  bool is_finalized_ ABSL_GUARDED_BY(mu_) = false;
  int operations_ ABSL_GUARDED_BY(mu_) = 0;  // begun
  std::deque<std::unique_ptr<Work>> waiting_ ABSL_GUARDED_BY(mu_);
  std::string error_ ABSL_GUARDED_BY(mu_);
};

}  // namespace ronda::testing

#endif  // RONDA_TESTS_TESTING_FAKE_NCCL_COMMUNICATOR_H_
