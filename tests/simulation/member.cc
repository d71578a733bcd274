// SPDX-License-Identifier: Apache-2.0

#include "tests/simulation/member.h"

#include <algorithm>
#include <new>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/status_macros.h"
#include "runtime/collectives/messages/message_communicator.h"
#include "runtime/control/messages/message_control_plane.h"

namespace ronda::simulation {
namespace {

constexpr absl::Duration kHeartbeat = absl::Milliseconds(200);
constexpr absl::Duration kHeartbeatTimeout = absl::Seconds(2);
constexpr absl::Duration kJoinTimeout = absl::Minutes(10);
// The longest wait for an operation: the job's longest deadline, plus the time that a failure takes to reach all ranks.
constexpr absl::Duration kLongestWait = absl::Seconds(60);
constexpr WaitLimits kShortLimits = {.warning = absl::Milliseconds(50), .deadline = absl::Milliseconds(100)};
constexpr int kCallbacksOneIn = 4;

// Calls production code, in which allocations may fail, and turns std::bad_alloc into an error, as the C ABI does.
template <typename Call>
auto Exposed(const Call& call) -> decltype(call()) {
  try {
    const VirtualWorld::Exposure exposure;
    return call();
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError("out of memory");
  } catch (const std::system_error& error) {
    return absl::ResourceExhaustedError(error.what());
  }
}

}  // namespace

int Member::Run() {
  const VirtualWorld::Shield shield;
  std::string reason;
  for (;;) {
    const absl::StatusOr<EpochPlace> place =
        channel_.Join({.last_epoch = epoch_, .step = marks_.steps(), .reason = reason}, kJoinTimeout);
    if (!place.ok()) return 1;
    epoch_ = place->epoch;
    job_.RecordPlace(id_, *place);
    const absl::StatusOr<Left> left = RunEpoch(*place);
    job_.RecordLeftEpoch(id_);
    if (left.ok() && *left == Left::kDone) return 0;
    if (left.ok() && *left == Left::kLeaves) {
      channel_.Leave().IgnoreError();
      job_.RecordLeft(id_);
      return 0;
    }
    reason = left.ok() ? "" : std::string(left.status().message());
    if (!left.ok()) ++job_.counts().failed_epochs;
    job_.RecordJoin(id_, epoch_, reason);
  }
}

absl::StatusOr<Member::Left> Member::RunEpoch(const EpochPlace& place) {
  agreement_ = std::make_unique<StopAgreement>(kChangeFlag);
  RONDA_RETURN_IF_ERROR(Exposed([&]() -> absl::Status {
    RONDA_ASSIGN_OR_RETURN(Transport transport, Connect(place));
    runtime_ = Runtime::Create({.tunables = job_.scenario().tunables}, place.topology, std::move(transport));
    return absl::OkStatus();
  }));
  const absl::Status told = channel_.TellMet(place.epoch);
  job_.RecordMet(epoch_);
  absl::StatusOr<Left> left = told.ok() ? Train() : told;
  if (!left.ok()) runtime_->Abandon(left.status());
  const absl::Status ended = Exposed([this] { return runtime_->Shutdown(); });
  for (const std::shared_ptr<Handle>& handle : handles_) {
    if (!handle->launched()) job_.Violate(absl::StrCat("member ", id_, " has an operation that never ended"));
  }
  handles_.clear();
  runtime_.reset();
  CheckCallbacks();
  if (left.ok() && !ended.ok()) return ended;
  return left;
}

absl::StatusOr<Transport> Member::Connect(const EpochPlace& place) {
  const RankId rank = place.topology.rank;
  const int size = place.topology.size;
  std::vector<Peer> peers;
  for (RankId peer = 0; peer < size; ++peer) peers.push_back({.rank = peer, .host = "here", .pid = 1000 + peer});
  const auto flights = std::make_shared<FlightBoard>(size);
  Transport transport = {.flights = flights};
  RONDA_ASSIGN_OR_RETURN(
      transport.control,
      ConnectMessageControlPlane({.rank = rank,
                                  .peers = peers,
                                  .messages = job_.network().Connect(absl::StrCat(place.epoch, "/control"),
                                                                     VirtualNetwork::Use::kControl, rank, size),
                                  .job_id = NameInEpoch("job", place.epoch),
                                  .start_timeout = job_.scenario().tunables.start_timeout,
                                  .heartbeat = kHeartbeat,
                                  .heartbeat_timeout = kHeartbeatTimeout,
                                  .flights = flights,
                                  .fan_out = 2}));
  transport.communicator = std::make_unique<MessageCommunicator>(MessageCommunicator::Options{
      .messages = job_.network().Connect(absl::StrCat(place.epoch, "/data"), VirtualNetwork::Use::kTensors, rank, size),
      .peers = peers,
      .flights = flights,
      .job_failure = [control = transport.control.get()] { return control->failure(); }});
  return transport;
}

absl::StatusOr<Member::Left> Member::Train() {
  RONDA_RETURN_IF_ERROR(TakeNewestState());
  while (marks_.steps() < job_.scenario().steps) {
    RONDA_RETURN_IF_ERROR(ContradictSometimes());
    RONDA_RETURN_IF_ERROR(OmitSometimes());
    RONDA_RETURN_IF_ERROR(MakeStep());
    RONDA_ASSIGN_OR_RETURN(const Left left, LookForChange());
    if (left != Left::kDone) return left;
  }
  return Left::kDone;
}

absl::Status Member::TakeNewestState() {
  const Topology& topology = runtime_->topology();
  RONDA_ASSIGN_OR_RETURN(StateFacts facts, FactsOf(marks_, -1, topology.rank));
  const Submission ask{.request = {.name = "ronda/elastic_sync",
                                   .op = OpType::kAllreduce,
                                   .dtype = DType::kInt64,
                                   .shape = {static_cast<int64_t>(facts.size())},
                                   .reduction = Reduction::kMax},
                       .input = facts.data(),
                       .output = facts.data()};
  RONDA_ASSIGN_OR_RETURN(const std::shared_ptr<Handle> asked, Submit(ask));
  RONDA_RETURN_IF_ERROR(WaitFor(*asked));
  RONDA_ASSIGN_OR_RETURN(const StateSource source, DecideSource(facts, topology.size));
  job_.RecordSource(id_, epoch_, source.step);
  if (source.rank == topology.rank && !marks_.has_state()) {
    marks_.Begin();
    state_ = job_.scenario().seed;
  }
  const bool is_behind = marks_.steps() != source.step;
  marks_.BringTo(is_behind ? std::optional(source.step) : std::nullopt);
  if (!source.any_behind) return absl::OkStatus();
  auto moved = static_cast<int64_t>(state_);
  const Submission move{
      .request = {.name = "state", .op = OpType::kBroadcast, .dtype = DType::kInt64, .shape = {1}, .root = source.rank},
      .output = &moved};
  RONDA_ASSIGN_OR_RETURN(const std::shared_ptr<Handle> handle, Submit(move));
  RONDA_RETURN_IF_ERROR(WaitFor(*handle));
  if (!is_behind) return absl::OkStatus();
  marks_.BeginUpdate();
  state_ = static_cast<uint64_t>(moved);
  marks_.EndUpdate();
  ++job_.counts().states_moved;
  job_.RecordState(id_, marks_.steps(), state_);
  return absl::OkStatus();
}

absl::Status Member::MakeStep() {
  const std::vector<std::unique_ptr<Part>> parts = PlanStep(job_.scenario().seed, marks_.steps(), runtime_->topology());
  const size_t first = handles_.size();
  absl::Status status = SubmitAll(parts);
  if (status.ok()) status = Await(parts);
  // The Part objects must outlive their operations.
  for (size_t i = first; i < handles_.size(); ++i) WaitFor(*handles_[i]).IgnoreError();
  RONDA_RETURN_IF_ERROR(status);
  handles_.clear();
  marks_.BeginUpdate();
  state_ = NextState(state_, parts);
  marks_.EndUpdate();
  job_.RecordState(id_, marks_.steps(), state_);
  return absl::OkStatus();
}

// Submits the operations, sometimes in a random order, so that the order differs between ranks.
absl::Status Member::SubmitAll(const std::vector<std::unique_ptr<Part>>& parts) {
  VirtualWorld& world = VirtualWorld::Get();
  std::vector<size_t> order(parts.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  if (world.OneIn(3)) {
    for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[world.Random(i)]);
  }
  std::vector<std::shared_ptr<Handle>> handles(parts.size());
  for (const size_t i : order) {
    Compute();
    absl::StatusOr<std::shared_ptr<Handle>> handle = Submit(parts[i]->submission());
    if (!handle.ok()) return handle.status();
    handles[i] = *handle;
    handles_.push_back(*std::move(handle));
  }
  handles_.erase(handles_.end() - static_cast<std::ptrdiff_t>(parts.size()), handles_.end());
  for (std::shared_ptr<Handle>& handle : handles) handles_.push_back(std::move(handle));
  return absl::OkStatus();
}

absl::Status Member::Await(const std::vector<std::unique_ptr<Part>>& parts) {
  const size_t first = handles_.size() - parts.size();
  for (size_t i = 0; i < parts.size(); ++i) {
    RONDA_RETURN_IF_ERROR(WaitFor(*handles_[first + i]));
    if (const std::string wrong = parts[i]->Check(handles_[first + i]->result()); !wrong.empty()) {
      job_.Violate(absl::StrCat("member ", id_, ", epoch ", epoch_, ": ", wrong));
    }
  }
  return absl::OkStatus();
}

// In some steps, one rank's submission contradicts the others. The operation fails on all ranks, and the job continues.
absl::Status Member::ContradictSometimes() {
  const int64_t every = job_.scenario().contradiction_every, step = marks_.steps();
  const Topology& topology = runtime_->topology();
  if (every == 0 || step % every != 0 || topology.size == 1) return absl::OkStatus();
  Part part("contradicted", OpType::kAllreduce, DType::kFloat32, 4, 0, topology);
  if (topology.rank == step % topology.size) part.Contradict();
  RONDA_ASSIGN_OR_RETURN(const std::shared_ptr<Handle> handle, Submit(part.submission()));
  const absl::Status status = WaitFor(*handle);
  if (status.ok()) job_.Violate("ranks that contradict each other have got a result");
  if (!absl::IsFailedPrecondition(status)) return status;
  ++job_.counts().refused;
  return absl::OkStatus();
}

// In some steps, one rank omits an operation, which fails on the other ranks after its deadline. The job continues.
absl::Status Member::OmitSometimes() {
  const int64_t every = job_.scenario().omission_every, step = marks_.steps();
  const Topology& topology = runtime_->topology();
  if (every == 0 || step % every != every - 1 || topology.size == 1) return absl::OkStatus();
  if (topology.rank == step % topology.size) return absl::OkStatus();
  Part part(absl::StrCat("omitted.", step), OpType::kAllreduce, DType::kFloat32, 4, 0, topology);
  part.SetLimits(kShortLimits);
  RONDA_ASSIGN_OR_RETURN(const std::shared_ptr<Handle> handle, Submit(part.submission()));
  const absl::Status status = WaitFor(*handle);
  if (status.ok()) job_.Violate("an operation that a rank has left out has got a result");
  if (!absl::IsDeadlineExceeded(status)) return status;
  ++job_.counts().late;
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<Handle>> Member::Submit(const Submission& submission) {
  RONDA_ASSIGN_OR_RETURN(std::shared_ptr<Handle> handle, Exposed([&] { return runtime_->Submit(submission); }));
  if (!VirtualWorld::Get().OneIn(kCallbacksOneIn)) return handle;
  callbacks_.push_back(std::make_unique<Callback>(Callback{.tensor = submission.request.name}));
  const absl::Status asked =
      handle->OnCompletion([callback = callbacks_.back().get()](const absl::Status&) { ++callback->calls; });
  if (!asked.ok()) callbacks_.pop_back();
  return handle;
}

absl::Status Member::WaitFor(const Handle& handle) {
  const absl::Duration deadline = MonotonicTime() + kLongestWait;
  if (absl::Status late =
          Exposed([&] { return handle.WaitUntil(deadline) ? absl::OkStatus() : absl::UnknownError(""); });
      !late.ok()) {
    job_.Violate(absl::StrCat("member ", id_, ", epoch ", epoch_, ": an operation has not ended after ",
                              absl::FormatDuration(kLongestWait)));
  }
  const absl::Status status = handle.Wait();
  if (status.ok()) job_.RecordOperation(id_, epoch_);
  return status;
}

absl::StatusOr<Member::Left> Member::LookForChange() {
  using LauncherRequest = MemberChannel::Request;
  RONDA_ASSIGN_OR_RETURN(const LauncherRequest launcher_request, channel_.Look());
  const bool is_asked = job_.IsAskedToLeave(id_) || launcher_request != LauncherRequest::kNone;
  const auto submit = [this](const Submission& submission) { return Submit(submission); };
  RONDA_ASSIGN_OR_RETURN(
      const StopAgreement::Request answer,
      agreement_->Call({.request = is_asked ? StopAgreement::Request::kStop : StopAgreement::Request::kNone}, submit));
  if (answer == StopAgreement::Request::kNone) return Left::kDone;
  return launcher_request == LauncherRequest::kEnd || job_.IsAskedToLeave(id_) ? Left::kLeaves : Left::kReform;
}

void Member::Compute() {
  VirtualWorld& world = VirtualWorld::Get();
  world.SleepUntil(world.now() + world.RandomDuration(job_.scenario().compute));
}

void Member::CheckCallbacks() {
  for (const std::unique_ptr<Callback>& callback : callbacks_) {
    ++job_.counts().callbacks;
    if (callback->calls == 1) continue;
    job_.Violate(absl::StrCat("the callback of '", callback->tensor, "' has come ", callback->calls, " times"));
  }
  callbacks_.clear();
}

}  // namespace ronda::simulation
