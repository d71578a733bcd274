// SPDX-License-Identifier: Apache-2.0

// Implements NCCL's functions, and the functions through which tests control the fake.
#include <dlfcn.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "kernels/cpu/convert.h"
#include "kernels/dtype.h"
#include "runtime/base/logging.h"
#include "runtime/base/mutex.h"
#include "tests/testing/fake_nccl/communicator.h"
#include "tests/testing/fake_nccl/fake_nccl.h"
#include "tests/testing/fake_nccl/path.h"
#include "tests/testing/fake_nccl/registrations.h"
#include "tests/testing/fake_nccl/reports.h"

namespace ronda::testing {
namespace {

constexpr int kFirstWithoutLocalWindows = 22900;

// The object behind an ncclComm_t.
struct Handle {
  std::shared_ptr<FakeNcclCommunicator> communicator;
  bool shares = false;  // its resources, with communicators that are split off
  bool wants_copy_engines = false;
};

int FromEnvironment(const char* variable, int otherwise) {
  const char* const value = std::getenv(variable);
  return value == nullptr ? otherwise : std::atoi(value);
}

fake_nccl_faults FaultsOfEnvironment() {
  return {.version = FromEnvironment("FAKE_NCCL_VERSION", kFakeNcclVersion),
          .rank = FromEnvironment("FAKE_NCCL_RANK", -1),
          .fail_init = FromEnvironment("FAKE_NCCL_FAIL_INIT", 0),
          .hang_init = FromEnvironment("FAKE_NCCL_HANG_INIT", 0),
          .error_at = FromEnvironment("FAKE_NCCL_ERROR_AT", -1),
          .hang_at = FromEnvironment("FAKE_NCCL_HANG_AT", -1),
          .fail_register = FromEnvironment("FAKE_NCCL_FAIL_REGISTER", 0),
          .stop_peers = FromEnvironment("FAKE_NCCL_STOP_PEERS", 0),
          .no_windows = FromEnvironment("FAKE_NCCL_NO_WINDOWS", 0),
          .overlooks_offsets = FromEnvironment("FAKE_NCCL_OVERLOOKS_OFFSETS", 0)};
}

// Finds a function of this process's fake CUDA, in the program or in a library that the program has loaded.
void* FindSymbol(const char* name) {
  if (void* const symbol = dlsym(RTLD_DEFAULT, name)) return symbol;
  const char* path = std::getenv("FAKE_CUDA_LIBRARY");  // below Ronda's own plugin
  if (path == nullptr) path = std::getenv("RONDA_CUDA_PLUGIN");
  void* const library = path == nullptr ? nullptr : dlopen(path, RTLD_NOW | RTLD_NOLOAD);
  return library == nullptr ? nullptr : dlsym(library, name);
}

struct Settings {
  Mutex mu;
  fake_nccl_faults faults ABSL_GUARDED_BY(mu) = FaultsOfEnvironment();
  fake_nccl_cuda cuda ABSL_GUARDED_BY(mu) = {};
};

Settings& TheSettings() {
  static auto* const settings = new Settings();
  return *settings;
}

fake_nccl_faults Faults() {
  const MutexLock lock(&TheSettings().mu);
  return TheSettings().faults;
}

fake_nccl_cuda Cuda() {
  const MutexLock lock(&TheSettings().mu);
  fake_nccl_cuda& cuda = TheSettings().cuda;
  if (cuda.enqueue == nullptr) {
    cuda.enqueue = reinterpret_cast<decltype(cuda.enqueue)>(FindSymbol("fake_cuda_enqueue"));
    cuda.enqueue_owned = reinterpret_cast<decltype(cuda.enqueue_owned)>(FindSymbol("fake_cuda_enqueue_owned"));
    cuda.is_captured = reinterpret_cast<decltype(cuda.is_captured)>(FindSymbol("fake_cuda_is_captured"));
    cuda.view = reinterpret_cast<decltype(cuda.view)>(FindSymbol("fake_cuda_view"));
    cuda.device_of = reinterpret_cast<decltype(cuda.device_of)>(FindSymbol("fake_cuda_device_of"));
    cuda.wait_before_free = reinterpret_cast<decltype(cuda.wait_before_free)>(FindSymbol("fake_cuda_wait_before_free"));
    if (void* const table = FindSymbol(RONDA_CUDA_PLUGIN_SYMBOL)) {
      cuda.plugin = reinterpret_cast<decltype(&ronda_cuda_plugin_table)>(table)();
    }
  }
  return cuda;
}

// Counts of the communicators of this process so far.
struct CommunicatorCounts {
  std::atomic<int> made{0};
  std::atomic<int> aborted{0};
  std::atomic<int> ended{0};  // destroyed or aborted
};

CommunicatorCounts& Communicators() {
  static CommunicatorCounts counts;
  return counts;
}

// The number of calls that are waiting for a stopped peer.
std::atomic<int>& WaitingForPeers() {
  static std::atomic<int> waiting{0};
  return waiting;
}

// The number of calls of each collective so far.
struct Calls {
  Mutex mu;
  std::map<std::string, int> made ABSL_GUARDED_BY(mu);
};

Calls& TheCalls() {
  static auto* const calls = new Calls();
  return *calls;
}

Registrations& TheRegistrations() {
  static auto* const registrations = new Registrations();
  return *registrations;
}

// The factors of operators from ncclRedOpCreatePreMulSum that have not been destroyed.
struct Factors {
  Mutex mu;
  std::map<int, double> live ABSL_GUARDED_BY(mu);
  int next ABSL_GUARDED_BY(mu) = static_cast<int>(NcclRedOp::kAvg) + 1;
};

Factors& TheFactors() {
  static auto* const factors = new Factors();
  return *factors;
}

// Rounds a factor to the type of floating-point elements, as NCCL does.
double RoundedTo(NcclDataType type, double factor) {
  const ronda::DType dtype = DTypeOf(type);
  if (!ronda::IsFloatingPoint(dtype)) return factor;
  alignas(double) std::byte rounded[sizeof(double)];
  ronda::kernels::Convert(&factor, ronda::DType::kFloat64, rounded, dtype, 1);
  ronda::kernels::Convert(rounded, dtype, &factor, ronda::DType::kFloat64, 1);
  return factor;
}

// Sets the operator and the factor of the operation to those of `op`. Returns false if there is no such operator.
bool SetOperator(NcclRedOp op, int ranks, NcclOperation* operation) {
  operation->op = op;
  if (op < NcclRedOp::kAvg) return true;
  operation->op = NcclRedOp::kSum;
  operation->factor = RoundedTo(operation->type, 1.0 / ranks);
  if (op == NcclRedOp::kAvg) return true;
  const MutexLock lock(&TheFactors().mu);
  const auto found = TheFactors().live.find(static_cast<int>(op));
  if (found == TheFactors().live.end()) return false;
  operation->factor = found->second;
  return true;
}

// The calls of this thread between ncclGroupStart and ncclGroupEnd.
struct Group {
  using Destination = std::pair<FakeNcclCommunicator*, void*>;  // and stream
  int depth = 0;
  std::map<Destination, std::vector<NcclOperation>> operations;
};

Group& TheGroup() {
  thread_local Group group;
  return group;
}

NcclPath PathOf(const NcclOperation& operation, NcclHandle comm) {
  using Kind = NcclOperation::Kind;
  NcclPath path = {.kind = operation.kind,
                   .input = TheRegistrations().Find(comm, operation.input),
                   .output = TheRegistrations().Find(comm, operation.output)};
  // In an in-place operation, the offset of a rank's share depends on the rank. Only the root has an input in a
  // broadcast, and an output in a reduce.
  if (operation.kind == Kind::kAllGather) path.input.offset = 0;
  if (operation.kind == Kind::kReduceScatter) path.output.offset = 0;
  if (operation.kind == Kind::kBroadcast) path.input = {};
  if (operation.kind == Kind::kReduce) path.output = {};
  return path;
}

// Returns whether NCCL 2.28.9 carries out the operation without kernels (ncclCeImplemented).
bool UsesCopyEngines(const NcclOperation& operation, NcclHandle comm) {
  return static_cast<Handle*>(comm)->wants_copy_engines && operation.is_symmetric &&
         operation.kind == NcclOperation::Kind::kAllGather;
}

// Returns whether the output overlaps the input, but not as in an operation in place. Then NCCL's result is undefined.
bool OverlapsWrongly(const NcclOperation& operation, int rank, int ranks) {
  if (operation.kind != NcclOperation::Kind::kReduceScatter) return false;
  const size_t bytes = operation.count * SizeOf(DTypeOf(operation.type));
  const auto* const input = static_cast<const char*>(operation.input);
  const auto* const output = static_cast<const char*>(operation.output);
  if (output == input + bytes * static_cast<size_t>(rank)) return false;
  return output < input + bytes * static_cast<size_t>(ranks) && input < output + bytes;
}

// Returns whether the operation has a buffer outside the memory of `device`.
bool IsElsewhere(const NcclOperation& operation, int rank, int device) {
  if (operation.count == 0) return false;
  const auto is_elsewhere = [device, device_of = Cuda().device_of](const void* buffer) {
    return buffer != nullptr && device_of(buffer) != device;
  };
  const bool uses_output = operation.kind != NcclOperation::Kind::kReduce || operation.peer == rank;
  return is_elsewhere(operation.input) || (uses_output && is_elsewhere(operation.output));
}

FakeNcclCommunicator& CommunicatorOf(NcclHandle comm) { return *static_cast<Handle*>(comm)->communicator; }

void ReportIfOccupied(const FakeNcclCommunicator& communicator) {
  if (!communicator.IsOccupied()) return;
  Report(absl::StrCat("rank ", communicator.rank(), " frees a communicator that a thread is in a call of"));
}

// The number of groups so far for which NCCL would have started a thread.
std::atomic<int>& Threads() {
  static std::atomic<int> threads{0};
  return threads;
}

NcclResult SubmitGroup() {
  NcclResult result = NcclResult::kSuccess;
  for (auto& [destination, operations] : TheGroup().operations) {
    const std::shared_ptr<FakeNcclCommunicator> kept = destination.first->shared_from_this();  // it may be aborted
    const NcclResult own = destination.first->Submit(std::move(operations), destination.second);
    destination.first->EndUse();
    if (own == NcclResult::kInProgress) Threads().fetch_add(1);
    if (result == NcclResult::kSuccess || result == NcclResult::kInProgress) result = own;
  }
  TheGroup().operations.clear();
  return result;
}

NcclResult Add(NcclOperation operation, NcclHandle comm, void* stream) {
  if (comm == nullptr || static_cast<unsigned>(operation.peer) >= static_cast<unsigned>(CommunicatorOf(comm).ranks())) {
    return NcclResult::kInvalidArgument;
  }
  const NcclResult state = CommunicatorOf(comm).EnsureReady();
  if (state != NcclResult::kSuccess) return state;
  if (OverlapsWrongly(operation, CommunicatorOf(comm).rank(), CommunicatorOf(comm).ranks())) {
    Report(absl::StrCat("rank ", CommunicatorOf(comm).rank(), "'s output overlaps its input, and not in its place"));
    return NcclResult::kInvalidArgument;
  }
  if (IsElsewhere(operation, CommunicatorOf(comm).rank(), CommunicatorOf(comm).device())) {
    Report(absl::StrCat("rank ", CommunicatorOf(comm).rank(), "'s ", NameOf(operation.kind),
                        " is of memory that is not its device's"));
    return NcclResult::kInvalidArgument;
  }
  if (!CommunicatorOf(comm).BeginUse()) {
    Report(absl::StrCat("two threads of rank ", CommunicatorOf(comm).rank(), " use a communicator at the same time"));
    return NcclResult::kInvalidUsage;
  }
  NcclPath path = PathOf(operation, comm);
  if (Faults().overlooks_offsets != 0) path.input.offset = path.output.offset = 0;
  operation.path = path.Encode();
  operation.is_symmetric = path.IsSymmetric();
  {
    const MutexLock lock(&TheCalls().mu);
    ++TheCalls().made[NameOf(operation.kind)];
    if (operation.is_symmetric) ++TheCalls().made["symmetric"];
    if (UsesCopyEngines(operation, comm)) ++TheCalls().made["copies"];
  }
  TheGroup().operations[{&CommunicatorOf(comm), stream}].push_back(operation);
  return TheGroup().depth > 0 ? NcclResult::kSuccess : SubmitGroup();
}

NcclResult AddReduction(NcclOperation operation, NcclRedOp op, NcclHandle comm, void* stream) {
  const bool exists = comm != nullptr && SetOperator(op, CommunicatorOf(comm).ranks(), &operation);
  return exists ? Add(operation, comm, stream) : NcclResult::kInvalidArgument;
}

NcclResult Deregister(Registrations::Kind kind, NcclHandle comm, void* registration) {
  const NcclResult state = CommunicatorOf(comm).EnsureReady();
  if (state != NcclResult::kSuccess) return state;
  WaitingForPeers().fetch_add(1);
  while (Faults().stop_peers != 0) absl::SleepFor(absl::Milliseconds(1));
  WaitingForPeers().fetch_sub(1);
  return TheRegistrations().Remove(kind, comm, registration) ? NcclResult::kSuccess : NcclResult::kInvalidArgument;
}

std::string NewName() {
  static std::atomic<int> ids{0};
  return absl::StrCat("/fake-nccl-", getpid(), "-", ids.fetch_add(1), "-", std::random_device()());
}

// The text of this thread's last error in a call without a communicator.
std::string& LastError() {
  thread_local std::string error;
  return error;
}

}  // namespace

using Kind = NcclOperation::Kind;

}  // namespace ronda::testing

using ronda::NcclConfig;
using ronda::NcclDataType;
using ronda::NcclHandle;
using ronda::NcclRedOp;
using ronda::NcclResult;
using ronda::NcclScalarResidence;
using ronda::NcclUniqueId;
using namespace ronda::testing;  // NOLINT: these are functions of the fake, outside its namespace as C has none

#define FAKE_NCCL_EXPORT __attribute__((visibility("default")))

extern "C" {

void fake_nccl_set_faults(const fake_nccl_faults* faults) {
  const ronda::MutexLock lock(&TheSettings().mu);
  TheSettings().faults = *faults;
}

void fake_nccl_set_cuda(const fake_nccl_cuda* cuda) {
  const ronda::MutexLock lock(&TheSettings().mu);
  TheSettings().cuda = *cuda;
}

int fake_nccl_live_communicators() { return Communicators().made.load() - Communicators().ended.load(); }
int fake_nccl_made_communicators() { return Communicators().made.load(); }
int fake_nccl_aborted_communicators() { return Communicators().aborted.load(); }

int fake_nccl_calls(const char* name) {
  const ronda::MutexLock lock(&TheCalls().mu);
  return TheCalls().made[name];
}

int fake_nccl_threads_in_calls() { return FakeNcclCommunicator::ThreadsInCalls(); }
int fake_nccl_threads() { return Threads().load(); }

int fake_nccl_waiting_for_peers() { return WaitingForPeers().load(); }

int fake_nccl_allocations() { return TheRegistrations().allocations(); }
int fake_nccl_registrations() { return TheRegistrations().registrations(); }
int fake_nccl_windows() { return TheRegistrations().windows(); }

void fake_nccl_take_report(char* text, size_t size) {
  const std::string report = PopReport();
  text[report.copy(text, size - 1)] = '\0';
}

FAKE_NCCL_EXPORT NcclResult ncclGetVersion(int* version) {
  const int wanted = Faults().version;
  *version = wanted == 0 ? kFakeNcclVersion : wanted;
  return NcclResult::kSuccess;
}

FAKE_NCCL_EXPORT NcclResult ncclGetUniqueId(NcclUniqueId* id) {
  std::memset(id, 0, sizeof(*id));
  NewName().copy(id->bytes, sizeof(id->bytes) - 1);
  return NcclResult::kSuccess;
}

FAKE_NCCL_EXPORT NcclResult ncclCommInitRankConfig(NcclHandle* comm, int ranks, NcclUniqueId id, int rank,
                                                   void* config) {
  const fake_nccl_cuda cuda = Cuda();
  const auto* const wanted = static_cast<const NcclConfig*>(config);
  if (wanted == nullptr || wanted->blocking != 0 || cuda.enqueue == nullptr || rank < 0 || rank >= ranks) {
    LastError() = "the fake makes communicators without blocking, and needs the fake CUDA";
    return NcclResult::kInvalidUsage;
  }
  int device = 0;
  if (cuda.plugin != nullptr && cuda.plugin->current_device(&device) != 0) return NcclResult::kUnhandledCudaError;
  *comm = new Handle{.communicator = std::make_shared<FakeNcclCommunicator>(Mailboxes::Open(id.bytes, ranks), rank,
                                                                            ranks, Faults(), cuda, device),
                     .shares = wanted->split_share == 1};
  Communicators().made.fetch_add(1);
  return NcclResult::kInProgress;
}

// As in NCCL, *child is set only when the split is complete and the parent is no longer in progress.
FAKE_NCCL_EXPORT NcclResult ncclCommSplit(NcclHandle comm, int color, int /*key*/, NcclHandle* child, void* config) {
  using Communicator = FakeNcclCommunicator;
  const auto* const wanted = static_cast<const NcclConfig*>(config);
  if (wanted == nullptr || color != 0) {
    LastError() = "the fake splits off what has all ranks, in their order";
    return NcclResult::kInvalidUsage;
  }
  *child = nullptr;
  const auto shares =
      static_cast<Handle*>(comm)->shares ? Communicator::Shares::kResources : Communicator::Shares::kNothing;
  const auto calls = wanted->blocking == 0 ? Communicator::Calls::kDoNotBlock : Communicator::Calls::kBlock;
  // NCCL ignores the fields that are newer than the configuration's version.
  const bool has_policy = wanted->size >= offsetof(NcclConfig, cta_policy) + sizeof(int) && wanted->version >= 22700;
  const bool wants_copies = has_policy && wanted->cta_policy == ronda::kNcclCopyEngines;
  if (wants_copies && CommunicatorOf(comm).version() < 22800) return NcclResult::kInvalidArgument;
  return CommunicatorOf(comm).Split(shares, calls, [child, wants_copies](std::shared_ptr<Communicator> made) {
    Communicators().made.fetch_add(1);
    *child = new Handle{.communicator = std::move(made), .wants_copy_engines = wants_copies};
  });
}

FAKE_NCCL_EXPORT NcclResult ncclCommGetAsyncError(NcclHandle comm, NcclResult* async_error) {
  *async_error = CommunicatorOf(comm).Progress();
  return NcclResult::kSuccess;
}

FAKE_NCCL_EXPORT NcclResult ncclCommFinalize(NcclHandle comm) { return CommunicatorOf(comm).Finalize(); }

FAKE_NCCL_EXPORT NcclResult ncclCommDestroy(NcclHandle comm) {
  ReportIfOccupied(CommunicatorOf(comm));
  TheRegistrations().RemoveAll(comm);
  Communicators().ended.fetch_add(1);
  delete static_cast<Handle*>(comm);
  return NcclResult::kSuccess;
}

FAKE_NCCL_EXPORT NcclResult ncclCommAbort(NcclHandle comm) {
  ReportIfOccupied(CommunicatorOf(comm));
  CommunicatorOf(comm).Abort();
  Communicators().aborted.fetch_add(1);
  // This wait comes first, because the fake CUDA lives until no thread waits in wait_before_free().
  Cuda().wait_before_free();
  CommunicatorOf(comm).AwaitStreams();
  return ncclCommDestroy(comm);
}

FAKE_NCCL_EXPORT const char* ncclGetErrorString(NcclResult result) {
  constexpr const char* kTexts[] = {"no error",
                                    "unhandled cuda error",
                                    "unhandled system error",
                                    "internal error",
                                    "invalid argument",
                                    "invalid usage",
                                    "remote process exited or there was a network error",
                                    "NCCL operation in progress"};
  return kTexts[static_cast<int>(result)];
}

FAKE_NCCL_EXPORT const char* ncclGetLastError(NcclHandle comm) {
  if (comm != nullptr) LastError() = CommunicatorOf(comm).last_error();
  return LastError().c_str();
}

FAKE_NCCL_EXPORT NcclResult ncclMemAlloc(void** memory, size_t bytes) {
  const fake_nccl_cuda cuda = Cuda();
  if (cuda.plugin == nullptr || cuda.plugin->allocate(RONDA_CUDA_DEVICE_MEMORY, bytes, memory) != 0) {
    return NcclResult::kUnhandledCudaError;
  }
  TheRegistrations().AddBlock(*memory, bytes);
  return NcclResult::kSuccess;
}

FAKE_NCCL_EXPORT NcclResult ncclMemFree(void* memory) {
  TheRegistrations().RemoveBlock(memory);
  return Cuda().plugin->release(RONDA_CUDA_DEVICE_MEMORY, memory) == 0 ? NcclResult::kSuccess
                                                                       : NcclResult::kInvalidArgument;
}

FAKE_NCCL_EXPORT NcclResult ncclCommRegister(NcclHandle comm, void* memory, size_t bytes, void** registration) {
  const NcclResult state = CommunicatorOf(comm).BeginRegistration();
  if (state != NcclResult::kSuccess) return state;
  *registration = TheRegistrations().Add(Registrations::Kind::kRegistered, comm, memory, bytes);
  return NcclResult::kSuccess;
}

FAKE_NCCL_EXPORT NcclResult ncclCommDeregister(NcclHandle comm, void* registration) {
  return Deregister(Registrations::Kind::kRegistered, comm, registration);
}

// If the communicator does not support windows, NCCL before 2.29 registers the memory like ncclCommRegister. Later
// versions do nothing and return no window.
FAKE_NCCL_EXPORT NcclResult ncclCommWindowRegister(NcclHandle comm, void* memory, size_t bytes, void** window,
                                                   int flags) {
  FakeNcclCommunicator& communicator = CommunicatorOf(comm);
  *window = nullptr;
  const NcclResult state = communicator.BeginRegistration();
  if (state != NcclResult::kSuccess) return state;
  if (flags != ronda::kNcclSymmetricWindow) return NcclResult::kInvalidArgument;
  if (!communicator.HasWindows()) {
    const bool registers = communicator.version() < kFirstWithoutLocalWindows;
    if (registers) *window = TheRegistrations().Add(Registrations::Kind::kRegistered, comm, memory, bytes);
    return NcclResult::kSuccess;
  }
  const NcclResult checked = TheRegistrations().CheckWindow(comm, memory, bytes);
  if (checked != NcclResult::kSuccess) return checked;
  const NcclResult met = communicator.MeetForWindow(bytes);
  if (met != NcclResult::kSuccess) return met;
  *window = TheRegistrations().Add(Registrations::Kind::kWindow, comm, memory, bytes);
  return NcclResult::kSuccess;
}

FAKE_NCCL_EXPORT NcclResult ncclCommWindowDeregister(NcclHandle comm, void* window) {
  if (window == nullptr) return NcclResult::kSuccess;
  if (CommunicatorOf(comm).IsRunning()) {
    Report(absl::StrCat("rank ", CommunicatorOf(comm).rank(), " deregisters a window while NCCL works on a stream"));
  }
  const bool is_window = CommunicatorOf(comm).HasWindows();
  return Deregister(is_window ? Registrations::Kind::kWindow : Registrations::Kind::kRegistered, comm, window);
}

FAKE_NCCL_EXPORT NcclResult ncclGroupStart() {
  ++TheGroup().depth;
  return NcclResult::kSuccess;
}

FAKE_NCCL_EXPORT NcclResult ncclGroupEnd() { return --TheGroup().depth > 0 ? NcclResult::kSuccess : SubmitGroup(); }

FAKE_NCCL_EXPORT NcclResult ncclAllReduce(const void* input, void* output, size_t count, NcclDataType type,
                                          NcclRedOp op, NcclHandle comm, void* stream) {
  return AddReduction({.kind = Kind::kAllReduce, .input = input, .output = output, .count = count, .type = type}, op,
                      comm, stream);
}

FAKE_NCCL_EXPORT NcclResult ncclReduce(const void* input, void* output, size_t count, NcclDataType type, NcclRedOp op,
                                       int root, NcclHandle comm, void* stream) {
  return AddReduction(
      {.kind = Kind::kReduce, .input = input, .output = output, .count = count, .type = type, .peer = root}, op, comm,
      stream);
}

FAKE_NCCL_EXPORT NcclResult ncclBroadcast(const void* input, void* output, size_t count, NcclDataType type, int root,
                                          NcclHandle comm, void* stream) {
  return Add({.kind = Kind::kBroadcast, .input = input, .output = output, .count = count, .type = type, .peer = root},
             comm, stream);
}

FAKE_NCCL_EXPORT NcclResult ncclAllGather(const void* input, void* output, size_t count, NcclDataType type,
                                          NcclHandle comm, void* stream) {
  return Add({.kind = Kind::kAllGather, .input = input, .output = output, .count = count, .type = type}, comm, stream);
}

FAKE_NCCL_EXPORT NcclResult ncclReduceScatter(const void* input, void* output, size_t count, NcclDataType type,
                                              NcclRedOp op, NcclHandle comm, void* stream) {
  return AddReduction({.kind = Kind::kReduceScatter, .input = input, .output = output, .count = count, .type = type},
                      op, comm, stream);
}

FAKE_NCCL_EXPORT NcclResult ncclRedOpCreatePreMulSum(NcclRedOp* op, void* scalar, NcclDataType type,
                                                     NcclScalarResidence residence, NcclHandle /*comm*/) {
  if (residence != NcclScalarResidence::kHostImmediate) return NcclResult::kInvalidArgument;
  double factor = 1;
  ronda::kernels::Convert(scalar, DTypeOf(type), &factor, ronda::DType::kFloat64, 1);
  const ronda::MutexLock lock(&TheFactors().mu);
  TheFactors().live[TheFactors().next] = factor;
  *op = static_cast<NcclRedOp>(TheFactors().next++);
  return NcclResult::kSuccess;
}

FAKE_NCCL_EXPORT NcclResult ncclRedOpDestroy(NcclRedOp op, NcclHandle /*comm*/) {
  const ronda::MutexLock lock(&TheFactors().mu);
  return TheFactors().live.erase(static_cast<int>(op)) == 1 ? NcclResult::kSuccess : NcclResult::kInvalidArgument;
}

FAKE_NCCL_EXPORT NcclResult ncclSend(const void* data, size_t count, NcclDataType type, int peer, NcclHandle comm,
                                     void* stream) {
  return Add({.kind = Kind::kSend, .input = data, .count = count, .type = type, .peer = peer}, comm, stream);
}

FAKE_NCCL_EXPORT NcclResult ncclRecv(void* data, size_t count, NcclDataType type, int peer, NcclHandle comm,
                                     void* stream) {
  return Add({.kind = Kind::kRecv, .output = data, .count = count, .type = type, .peer = peer}, comm, stream);
}

}  // extern "C"
