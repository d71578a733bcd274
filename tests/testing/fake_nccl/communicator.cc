// SPDX-License-Identifier: Apache-2.0

#include "tests/testing/fake_nccl/communicator.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "kernels/cpu/convert.h"
#include "kernels/cpu/reduce.h"
#include "runtime/base/logging.h"
#include "tests/testing/fake_nccl/reports.h"

namespace ronda::testing {

namespace {

DevicePlace PlaceOf(const ronda_cuda_plugin* plugin, int device) {
  DevicePlace place = {};
  ronda_cuda_device description = {};
  if (plugin != nullptr) plugin->describe(device, &description);
  const char* const host = std::getenv("NCCL_HOSTID");
  std::snprintf(place.host, sizeof(place.host), "%s", host == nullptr ? "" : host);
  std::snprintf(place.pci_bus, sizeof(place.pci_bus), "%s", description.pci_bus);
  std::snprintf(place.uuid, sizeof(place.uuid), "%s", description.uuid);
  return place;
}

}  // namespace

FakeNcclCommunicator::FakeNcclCommunicator(std::shared_ptr<Mailboxes> mailboxes, int rank, int ranks,
                                           const fake_nccl_faults& faults, const fake_nccl_cuda& cuda, int device,
                                           Calls calls, std::shared_ptr<std::atomic<bool>> is_aborted)
    : mailboxes_(std::move(mailboxes)),
      rank_(rank),
      ranks_(ranks),
      faults_(faults),
      cuda_(cuda),
      device_(device),
      turns_(DeviceTurns::Of(device)),
      calls_(calls),
      is_aborted_(std::move(is_aborted)) {
  turns_.Join(mailboxes_->name(), ranks_);
  if (HasFault(faults_.fail_init)) {
    Fail("no network device is usable");
  } else if (!HasFault(faults_.hang_init)) {
    mailboxes_->Join(rank_, PlaceOf(cuda_.plugin, device_));
  }
}

namespace {

DeviceTurns::Group GroupOf(const std::vector<NcclOperation>& operations) {
  using Kind = NcclOperation::Kind;
  const bool has_collective = std::ranges::any_of(operations, [](const NcclOperation& operation) {
    return operation.kind != Kind::kSend && operation.kind != Kind::kRecv;
  });
  return has_collective ? DeviceTurns::Group::kOfAllRanks : DeviceTurns::Group::kOfSomeRanks;
}

}  // namespace

NcclResult FakeNcclCommunicator::Progress() {
  const MutexLock lock(&mu_);
  if (!error_.empty()) return HasFault(faults_.fail_init) ? NcclResult::kSystemError : NcclResult::kRemoteError;
  if (!mailboxes_->AllHaveJoined()) return NcclResult::kInProgress;
  if (std::string objection = ObjectionToDevices(); !objection.empty()) {
    error_ = std::move(objection);
    return NcclResult::kInvalidUsage;
  }
  if (unborn_ != nullptr) {
    if (!unborn_->mailboxes_->AllHaveJoined()) return NcclResult::kInProgress;
    std::exchange(made_, nullptr)(std::exchange(unborn_, nullptr));
  }
  if (is_finalized_ && (IsUsed() || !mailboxes_->AllHaveFinalized())) return NcclResult::kInProgress;
  if (waiting_.empty()) return NcclResult::kSuccess;
  while (!waiting_.empty()) {
    std::unique_ptr<Work> work = std::move(waiting_.front());
    waiting_.pop_front();
    if (!Enqueue(std::move(work))) return NcclResult::kUnhandledCudaError;
  }
  return NcclResult::kInProgress;
}

// Since version 2.30.7, NCCL compares the UUIDs of the devices. Earlier versions compare PCI bus IDs.
std::string FakeNcclCommunicator::ObjectionToDevices() const {
  const DevicePlace& own = mailboxes_->PlaceOf(rank_);
  for (int other = 0; other < ranks_; ++other) {
    const DevicePlace& place = mailboxes_->PlaceOf(other);
    const bool has_uuids = faults_.version >= 23007 && own.uuid[0] != '\0' && place.uuid[0] != '\0';
    const bool is_same = has_uuids ? std::strcmp(own.uuid, place.uuid) == 0
                                   : own.pci_bus[0] != '\0' && std::strcmp(own.pci_bus, place.pci_bus) == 0;
    if (other != rank_ && is_same && std::strcmp(own.host, place.host) == 0) {
      return absl::StrCat("ranks ", rank_, " and ", other, " use the same GPU");
    }
  }
  return "";
}

bool FakeNcclCommunicator::Enqueue(std::unique_ptr<Work> owned) {
  if (cuda_.is_captured(owned->stream) != 0) return Capture(std::move(owned));
  running_.fetch_add(1);
  Work* const work = owned.release();
  work->turn = turns_.Add(mailboxes_->name(), work->stream, GroupOf(work->operations));
  if (cuda_.enqueue(work->stream, &RunOnStream, work) == 0) return true;
  turns_.End(work->turn);
  running_.fetch_sub(1);
  delete work;
  return false;
}

bool FakeNcclCommunicator::Capture(std::unique_ptr<Work> work) {
  void* const stream = work->stream;
  captured_.fetch_add(1);
  return cuda_.enqueue_owned(stream, &RunCaptured, work.release(), [](void* captured) {
    const std::unique_ptr<Work> work(static_cast<Work*>(captured));
    work->communicator->captured_.fetch_sub(1);
  }) == 0;
}

void FakeNcclCommunicator::RunCaptured(void* context) {
  const Work& work = *static_cast<const Work*>(context);
  FakeNcclCommunicator& communicator = *work.communicator;
  communicator.running_.fetch_add(1);
  communicator.Run(communicator.turns_.Add(communicator.mailboxes_->name(), work.stream, GroupOf(work.operations)),
                   work.operations);
  communicator.running_.fetch_sub(1);
}

NcclResult FakeNcclCommunicator::EnsureReady() {
  const MutexLock lock(&mu_);
  if (mailboxes_->AllHaveJoined() && waiting_.empty() && unborn_ == nullptr) return NcclResult::kSuccess;
  Report(absl::StrCat("rank ", rank_, " has used a communicator that is ncclInProgress"));
  return NcclResult::kInvalidArgument;
}

NcclResult FakeNcclCommunicator::BeginRegistration() {
  return HasFault(faults_.fail_register) ? NcclResult::kSystemError : EnsureReady();
}

NcclResult FakeNcclCommunicator::MeetForWindow(size_t bytes) {
  if (calls_ != Calls::kBlock) return NcclResult::kInvalidUsage;
  Enter();
  const absl::Cleanup leave = [this] { Leave(); };
  const auto meet = [&] {
    const int nth = mailboxes_->Post(rank_, bytes);
    return AwaitUnlessAborted([&] { return mailboxes_->AllHavePosted(nth); });
  };
  if (!meet()) return NcclResult::kInternalError;
  for (int rank = 0; rank < ranks_; ++rank) {
    if (mailboxes_->Posted(rank) == bytes) continue;
    Report(absl::StrCat("rank ", rank_, " registers a window of ", bytes, " bytes, and rank ", rank, " one of ",
                        mailboxes_->Posted(rank), " bytes"));
    return NcclResult::kUnhandledCudaError;
  }
  return meet() ? NcclResult::kSuccess : NcclResult::kInternalError;  // all ranks have read the numbers
}

NcclResult FakeNcclCommunicator::Split(Shares shares, Calls calls,
                                       std::function<void(std::shared_ptr<FakeNcclCommunicator>)> made) {
  const NcclResult state = EnsureReady();
  if (state != NcclResult::kSuccess) return state;
  const MutexLock lock(&mu_);
  made_ = std::move(made);
  unborn_ = std::make_shared<FakeNcclCommunicator>(
      Mailboxes::Open(absl::StrCat(mailboxes_->name(), "-", ++splits_), ranks_), rank_, ranks_, faults_, cuda_, device_,
      calls, shares == Shares::kResources ? is_aborted_ : std::make_shared<std::atomic<bool>>(false));
  children_.push_back(unborn_);
  return NcclResult::kInProgress;
}

NcclResult FakeNcclCommunicator::Submit(std::vector<NcclOperation> group, void* stream) {
  auto work = std::make_unique<Work>(
      Work{.communicator = shared_from_this(), .operations = std::move(group), .stream = stream});
  if (calls_ == Calls::kBlock) return SubmitAndWait(std::move(work));
  const MutexLock lock(&mu_);
  if (is_finalized_) return NcclResult::kInvalidUsage;
  waiting_.push_back(std::move(work));
  return NcclResult::kInProgress;
}

NcclResult FakeNcclCommunicator::SubmitAndWait(std::unique_ptr<Work> work) {
  Enter();
  const absl::Cleanup leave = [this] { Leave(); };
  if (!AwaitPeers(work->operations)) return NcclResult::kInternalError;
  const MutexLock lock(&mu_);
  if (is_finalized_) return NcclResult::kInvalidUsage;
  return Enqueue(std::move(work)) ? NcclResult::kSuccess : NcclResult::kUnhandledCudaError;
}

bool FakeNcclCommunicator::AwaitPeers(const std::vector<NcclOperation>& group) {
  if (GroupOf(group) == DeviceTurns::Group::kOfSomeRanks) return !is_aborted_->load();
  std::string kind;
  for (const NcclOperation& operation : group) {
    absl::StrAppend(&kind, static_cast<int>(operation.kind), " ", operation.count, " ",
                    static_cast<int>(operation.type), ";");
  }
  int nth = 0;
  {
    const MutexLock lock(&mu_);
    if (!connected_.insert(kind).second) return !is_aborted_->load();
    nth = static_cast<int>(connected_.size());
  }
  mailboxes_->Connect();
  return AwaitUnlessAborted([&] { return mailboxes_->AllHaveConnected(nth); });
}

template <typename Condition>
bool FakeNcclCommunicator::AwaitUnlessAborted(const Condition& condition) const {
  while (!condition()) {
    if (is_aborted_->load()) return false;
    absl::SleepFor(absl::Microseconds(100));
  }
  return !is_aborted_->load();
}

NcclResult FakeNcclCommunicator::Finalize() {
  const NcclResult state = EnsureReady();
  if (state != NcclResult::kSuccess) return state;
  {
    const MutexLock lock(&mu_);
    if (is_finalized_) return NcclResult::kInvalidUsage;
    is_finalized_ = true;
    DeviceTurns::Leave(mailboxes_->name());
    mailboxes_->Finalize();
  }
  if (calls_ == Calls::kDoNotBlock) return NcclResult::kInProgress;
  Enter();
  const absl::Cleanup leave = [this] { Leave(); };
  const bool has_ended = AwaitUnlessAborted([&] { return !IsUsed() && mailboxes_->AllHaveFinalized(); });
  return has_ended ? NcclResult::kSuccess : NcclResult::kInternalError;
}

void FakeNcclCommunicator::Abort() {
  std::deque<std::unique_ptr<Work>> dropped;  // may hold the last reference to this object
  std::vector<std::weak_ptr<FakeNcclCommunicator>> children;
  {
    const MutexLock lock(&mu_);
    is_aborted_->store(true);
    DeviceTurns::Leave(mailboxes_->name());
    dropped.swap(waiting_);
    children = children_;
    unborn_.reset();
  }
  WakeUp();
  for (const std::weak_ptr<FakeNcclCommunicator>& child : children) {
    if (const std::shared_ptr<FakeNcclCommunicator> living = child.lock()) living->WakeUp();
  }
}

// Wakes all waiting threads, which then check the abort flag.
void FakeNcclCommunicator::WakeUp() {
  const MutexLock lock(&mu_);
  aborted_.NotifyAll();
  mailboxes_->WakeUp(rank_);
}

void FakeNcclCommunicator::AwaitStreams() {
  while (running_.load() > 0) absl::SleepFor(absl::Milliseconds(1));
}

std::string FakeNcclCommunicator::last_error() {
  const MutexLock lock(&mu_);
  return error_;
}

void FakeNcclCommunicator::RunOnStream(void* context) {
  const std::unique_ptr<Work> work(static_cast<Work*>(context));
  work->communicator->Run(work->turn, std::move(work->operations));
  work->communicator->running_.fetch_sub(1);
}

void FakeNcclCommunicator::Run(DeviceTurns::Place turn, std::vector<NcclOperation> operations) {
  for (NcclOperation& operation : operations) {
    operation.input = cuda_.view(operation.input);
    operation.output = cuda_.view(operation.output);
  }
  turns_.Begin(turn, *is_aborted_);
  if (PassFaults(operations.size())) RunOperations(operations, *mailboxes_, rank_, ranks_, *is_aborted_);
  turns_.End(turn);
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
  while (!is_aborted_->load()) aborted_.Wait(&mu_);
}

void FakeNcclCommunicator::Fail(const std::string& error) {
  const MutexLock lock(&mu_);
  error_ = error;
}

DType DTypeOf(NcclDataType type) {
  constexpr DType kTypes[] = {DType::kInt8,   DType::kUint8,   DType::kInt32,   DType::kUint32,  DType::kInt64,
                              DType::kUint64, DType::kFloat16, DType::kFloat32, DType::kFloat64, DType::kBfloat16};
  return kTypes[static_cast<int>(type)];
}

namespace {

using Kind = NcclOperation::Kind;

ReduceOp ReduceOpOf(NcclRedOp op) {
  constexpr ReduceOp kOps[] = {ReduceOp::kSum, ReduceOp::kProduct, ReduceOp::kMax, ReduceOp::kMin};
  return kOps[static_cast<int>(op)];
}

char* WithoutConst(const void* data) { return static_cast<char*>(const_cast<void*>(data)); }

// Runs one rank's operations of a group.
class GroupRun {
 public:
  GroupRun(Mailboxes& mailboxes, int rank, int ranks, const std::atomic<bool>& gives_up)
      : mailboxes_(mailboxes), rank_(rank), ranks_(ranks), gives_up_(gives_up) {}

  bool Run(const std::vector<NcclOperation>& operations) {
    std::vector<Transfer> transfers;
    for (const NcclOperation& operation : operations) {
      const size_t bytes = operation.count * SizeOf(DTypeOf(operation.type));
      path_ = operation.path;
      if (operation.kind == Kind::kSend) transfers.push_back(Send(operation.peer, operation.input, bytes));
      if (operation.kind == Kind::kRecv) transfers.push_back(Receive(operation.peer, operation.output, bytes));
    }
    if (!transfers.empty() && !Carry(std::move(transfers))) return false;
    for (const NcclOperation& operation : operations) {
      path_ = operation.path;
      if (!RunCollective(operation)) return false;
    }
    return true;
  }

 private:
  Transfer Send(int peer, const void* data, size_t bytes) const {
    return {
        .way = Transfer::Way::kSend, .peer = peer, .data = WithoutConst(data), .own = {.bytes = bytes, .path = path_}};
  }
  Transfer Receive(int peer, void* data, size_t bytes) const {
    return {.way = Transfer::Way::kReceive,
            .peer = peer,
            .data = static_cast<char*>(data),
            .own = {.bytes = bytes, .path = path_}};
  }
  bool Carry(std::vector<Transfer> transfers) { return mailboxes_.Run(rank_, std::move(transfers), gives_up_); }

  bool RunCollective(const NcclOperation& operation) {
    switch (operation.kind) {
      case Kind::kAllReduce:
        return IsSymmetricSum(operation) ? SumSymmetrically(operation) : AllReduce(operation);
      case Kind::kBroadcast:
        return Broadcast(operation);
      case Kind::kAllGather:
        return AllGather(operation);
      case Kind::kReduceScatter:
        return IsSymmetricSum(operation) ? SumSymmetrically(operation) : ReduceScatter(operation);
      case Kind::kReduce:
        return Reduce(operation);
      case Kind::kSend:
      case Kind::kRecv:
        return true;
    }
    return false;
  }

  // Returns whether NCCL 2.28.9 has a symmetric-memory kernel for the operation (ncclSymkImplemented).
  static bool IsSymmetricSum(const NcclOperation& operation) {
    const DType dtype = DTypeOf(operation.type);
    return operation.is_symmetric && operation.op == NcclRedOp::kSum && operation.factor == 1 &&
           IsFloatingPoint(dtype) && dtype != DType::kFloat64;
  }

  // Each rank reads its part of every rank's input, and sums in float32. In an all-reduce, the part is the whole input.
  bool SumSymmetrically(const NcclOperation& operation) {
    const DType dtype = DTypeOf(operation.type);
    const size_t bytes = operation.count * SizeOf(dtype);
    const auto* const input = static_cast<const char*>(operation.input);
    const auto part_of = [&](int rank) {
      return input + (operation.kind == Kind::kReduceScatter ? bytes * static_cast<size_t>(rank) : 0);
    };
    std::vector<std::vector<char>> parts(static_cast<size_t>(ranks_), std::vector<char>(bytes));
    std::vector<const void*> sources;
    std::vector<Transfer> transfers;
    for (int peer = 0; peer < ranks_; ++peer) {
      char* const arrived = parts[static_cast<size_t>(peer)].data();
      sources.push_back(arrived);
      if (peer == rank_) std::memcpy(arrived, part_of(rank_), bytes);
      if (peer == rank_) continue;
      transfers.push_back(Send(peer, part_of(peer), bytes));
      transfers.push_back(Receive(peer, arrived, bytes));
    }
    if (!Carry(std::move(transfers))) return false;
    kernels::Reduce({.sources = sources,
                     .dtype = dtype,
                     .op = ReduceOp::kSum,
                     .dst = operation.output,
                     .dst_dtype = dtype,
                     .count = operation.count});
    return true;
  }

  // Does a reduce-scatter and then an all-gather around the ring.
  bool AllReduce(const NcclOperation& operation) {
    const DType dtype = DTypeOf(operation.type);
    const size_t element = SizeOf(dtype);
    std::memmove(operation.output, operation.input, operation.count * element);
    ScaleBy(operation.factor, operation.output, dtype, operation.count);
    char* const data = static_cast<char*>(operation.output);
    std::vector<char> arrived((operation.count / ranks_ + 1) * element);
    const auto begin = [&](int chunk) { return operation.count * Wrap(chunk) / ranks_; };
    const auto count = [&](int chunk) { return operation.count * (Wrap(chunk) + 1) / ranks_ - begin(chunk); };
    for (int step = 0; step < 2 * (ranks_ - 1); ++step) {
      const bool reduces = step < ranks_ - 1;
      const int leaving = rank_ - step;
      const int arriving = leaving - 1;
      char* const place = data + begin(arriving) * element;
      if (!Carry({Send(Wrap(rank_ + 1), data + begin(leaving) * element, count(leaving) * element),
                  Receive(Wrap(rank_ - 1), reduces ? arrived.data() : place, count(arriving) * element)})) {
        return false;
      }
      if (reduces) Combine(place, arrived.data(), dtype, ReduceOpOf(operation.op), count(arriving));
    }
    return true;
  }

  // Passes partial sums around the ring, so that each sum ends at the rank that receives it. Only the part of the input
  // that the output overlaps changes.
  bool ReduceScatter(const NcclOperation& operation) {
    const DType dtype = DTypeOf(operation.type);
    const size_t bytes = operation.count * SizeOf(dtype);
    const auto* const input = static_cast<const char*>(operation.input);
    std::vector<char> sums(input, input + bytes * ranks_);
    ScaleBy(operation.factor, sums.data(), dtype, operation.count * ranks_);
    std::vector<char> arrived(bytes);
    const auto chunk = [&](int i) { return sums.data() + Wrap(i) * bytes; };
    for (int step = 0; step < ranks_ - 1; ++step) {
      const int leaving = rank_ - 1 - step;
      if (!Carry({Send(Wrap(rank_ + 1), chunk(leaving), bytes), Receive(Wrap(rank_ - 1), arrived.data(), bytes)})) {
        return false;
      }
      Combine(chunk(leaving - 1), arrived.data(), dtype, ReduceOpOf(operation.op), operation.count);
    }
    std::memcpy(operation.output, chunk(rank_), bytes);
    return true;
  }

  // The other ranks send their terms to the root, which adds them up. Only the root uses its output.
  bool Reduce(const NcclOperation& operation) {
    const DType dtype = DTypeOf(operation.type);
    const size_t bytes = operation.count * SizeOf(dtype);
    const auto* const input = static_cast<const char*>(operation.input);
    std::vector<char> sum(input, input + bytes);
    ScaleBy(operation.factor, sum.data(), dtype, operation.count);
    if (rank_ != operation.peer) return Carry({Send(operation.peer, sum.data(), bytes)});
    std::vector<char> arrived(bytes);
    for (int peer = 0; peer < ranks_; ++peer) {
      if (peer == rank_) continue;
      if (!Carry({Receive(peer, arrived.data(), bytes)})) return false;
      Combine(sum.data(), arrived.data(), dtype, ReduceOpOf(operation.op), operation.count);
    }
    std::memcpy(operation.output, sum.data(), bytes);
    return true;
  }

  static void ScaleBy(double factor, void* data, DType dtype, size_t count) {
    if (factor != 1) kernels::Convert(data, dtype, data, dtype, count, {.multiplier = factor});
  }

  static void Combine(char* into, const char* other, DType dtype, ReduceOp op, size_t count) {
    const void* const sources[] = {other, into};
    kernels::Reduce({.sources = sources, .dtype = dtype, .op = op, .dst = into, .dst_dtype = dtype, .count = count});
  }

  bool Broadcast(const NcclOperation& operation) {
    const size_t bytes = operation.count * SizeOf(DTypeOf(operation.type));
    if (rank_ != operation.peer) return Carry({Receive(operation.peer, operation.output, bytes)});
    std::vector<Transfer> transfers;
    for (int peer = 0; peer < ranks_; ++peer) {
      if (peer != rank_) transfers.push_back(Send(peer, operation.input, bytes));
    }
    std::memmove(operation.output, operation.input, bytes);
    return Carry(std::move(transfers));
  }

  bool AllGather(const NcclOperation& operation) {
    const size_t bytes = operation.count * SizeOf(DTypeOf(operation.type));
    char* const output = static_cast<char*>(operation.output);
    std::memmove(output + rank_ * bytes, operation.input, bytes);
    std::vector<Transfer> transfers;
    for (int peer = 0; peer < ranks_; ++peer) {
      if (peer == rank_) continue;
      transfers.push_back(Send(peer, operation.input, bytes));
      transfers.push_back(Receive(peer, output + peer * bytes, bytes));
    }
    return Carry(std::move(transfers));
  }

  int Wrap(int rank) const { return (rank % ranks_ + ranks_) % ranks_; }

  Mailboxes& mailboxes_;
  const int rank_;
  const int ranks_;
  const std::atomic<bool>& gives_up_;
  uint64_t path_ = 0;  // of the operation
};

}  // namespace

bool RunOperations(const std::vector<NcclOperation>& operations, Mailboxes& mailboxes, int rank, int ranks,
                   const std::atomic<bool>& gives_up) {
  return GroupRun(mailboxes, rank, ranks, gives_up).Run(operations);
}

}  // namespace ronda::testing
