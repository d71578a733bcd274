#include "tests/testing/fake_nccl/communicator.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace ronda::testing {

FakeNcclCommunicator::FakeNcclCommunicator(std::shared_ptr<Mailboxes> mailboxes, int rank, int ranks,
                                           const fake_nccl_faults& faults, const fake_nccl_cuda& cuda)
    : mailboxes_(std::move(mailboxes)), rank_(rank), ranks_(ranks), faults_(faults), cuda_(cuda) {
  if (HasFault(faults_.fail_init)) {
    Fail("no network device is usable");
  } else if (!HasFault(faults_.hang_init)) {
    mailboxes_->Join();
  }
}

NcclResult FakeNcclCommunicator::Progress() {
  const MutexLock lock(&mu_);
  if (!error_.empty()) return HasFault(faults_.fail_init) ? NcclResult::kSystemError : NcclResult::kRemoteError;
  if (!mailboxes_->AllHaveJoined()) return NcclResult::kInProgress;
  if (is_finalized_ && (running_.load() > 0 || !mailboxes_->AllHaveFinalized())) return NcclResult::kInProgress;
  if (waiting_.empty()) return NcclResult::kSuccess;
  while (!waiting_.empty()) {
    running_.fetch_add(1);
    Work* const work = waiting_.front().release();
    waiting_.pop_front();
    if (cuda_.enqueue(work->stream, &RunOnStream, work) == 0) continue;
    delete work;
    return NcclResult::kUnhandledCudaError;
  }
  return NcclResult::kInProgress;
}

NcclResult FakeNcclCommunicator::Submit(std::vector<NcclOperation> group, void* stream) {
  const MutexLock lock(&mu_);
  if (is_finalized_ || !mailboxes_->AllHaveJoined()) return NcclResult::kInvalidUsage;
  waiting_.push_back(std::make_unique<Work>(
      Work{.communicator = shared_from_this(), .operations = std::move(group), .stream = stream}));
  return NcclResult::kInProgress;
}

NcclResult FakeNcclCommunicator::Finalize() {
  const MutexLock lock(&mu_);
  if (is_finalized_) return NcclResult::kInvalidUsage;
  is_finalized_ = true;
  mailboxes_->Finalize();
  return NcclResult::kInProgress;
}

void FakeNcclCommunicator::Abort() {
  std::deque<std::unique_ptr<Work>> dropped;  // may be what keeps this alive
  const MutexLock lock(&mu_);
  is_aborted_.store(true);
  dropped.swap(waiting_);
  aborted_.NotifyAll();
  mailboxes_->WakeUp(rank_);
}

std::string FakeNcclCommunicator::last_error() {
  const MutexLock lock(&mu_);
  return error_;
}

void FakeNcclCommunicator::RunOnStream(void* context) {
  const std::unique_ptr<Work> work(static_cast<Work*>(context));
  work->communicator->Run(std::move(work->operations));
  work->communicator->running_.fetch_sub(1);
}

void FakeNcclCommunicator::Run(std::vector<NcclOperation> operations) {
  for (NcclOperation& operation : operations) {
    operation.input = cuda_.view(operation.input);
    operation.output = cuda_.view(operation.output);
  }
  if (PassFaults(operations.size())) RunOperations(operations, *mailboxes_, rank_, ranks_, is_aborted_);
}

bool FakeNcclCommunicator::PassFaults(size_t operations) {
  int first = 0;
  {
    const MutexLock lock(&mu_);
    first = operations_;
    operations_ += static_cast<int>(operations);
  }
  const auto is_due = [&](int at) { return at >= 0 && first + static_cast<int>(operations) > at && HasFault(1); };
  if (is_due(faults_.error_at)) Fail(absl::StrCat("rank ", rank_, " has lost the connection to its peer"));
  if (!is_due(faults_.error_at) && !is_due(faults_.hang_at)) return true;
  WaitForAbort();
  return false;
}

void FakeNcclCommunicator::WaitForAbort() {
  const MutexLock lock(&mu_);
  while (!is_aborted_.load()) aborted_.Wait(&mu_);
}

void FakeNcclCommunicator::Fail(const std::string& error) {
  const MutexLock lock(&mu_);
  error_ = error;
}

}  // namespace ronda::testing
