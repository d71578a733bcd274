// SPDX-License-Identifier: Apache-2.0

#include "runtime/engine/device/caller_lane.h"

#include <algorithm>
#include <cstddef>
#include <system_error>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "runtime/base/status_macros.h"
#include "runtime/engine/device/device_completion.h"
#include "runtime/monitor/flight_recorder.h"

namespace ronda {
namespace {

constexpr absl::string_view kRefused = "refused: ";
constexpr absl::string_view kCaptured = ", captured";  // at the end of a label
constexpr absl::string_view kInside = "inside";        // the lane's memory
constexpr absl::string_view kOutside = "outside";
constexpr absl::Duration kPollInterval = absl::Microseconds(100);

// Returns the beginning of a call's label, which is the same on all ranks.
std::string CallName(uint64_t number, ProcessSetId lane) {
  return absl::StrCat("call ", number, " of lane ", lane, ": ");
}

// Returns "call 17 of lane 1" for a call's label.
absl::string_view CallPart(absl::string_view label) { return label.substr(0, label.find(": ")); }

// Returns a label that fits into the flight recorder, from which the other ranks read it. A hash of the whole label
// replaces the end of a longer one, so that labels that differ stay different.
std::string FitForRecorder(std::string label) {
  if (label.size() <= FlightRecorder::kNameBytes) return label;
  uint64_t hash = 14695981039346656037U;  // FNV-1a, which is the same on all ranks
  for (const char each : label) hash = (hash ^ static_cast<unsigned char>(each)) * 1099511628211U;
  const std::string end = absl::StrCat("... #", absl::Hex(hash, absl::kZeroPad16));
  return absl::StrCat(label.substr(0, FlightRecorder::kNameBytes - end.size()), end);
}

// Returns the words that precede the root in the label of an operation.
const char* Preposition(OpType op) {
  const bool is_to_root = op == OpType::kReduce || op == OpType::kGather;
  return is_to_root ? " to rank " : " from rank ";
}

// Returns the number of elements that a rank contributes to a call. For a reducescatter, returns the number of elements
// that the rank receives.
size_t CountOf(const TensorRequest& request, int members) {
  const auto count = static_cast<size_t>(ElementCount(request.shape));
  return request.op == OpType::kReduceScatter ? count / static_cast<size_t>(members) : count;
}

// Describes the difference between a sender's part and a receiver's part.
std::string Contradiction(RankId sender, PartRecord sent, RankId receiver, PartRecord received) {
  if (sent.count != received.count) {
    return absl::StrCat("rank ", sender, " sends ", sent.count, " elements to rank ", receiver, ", which receives ",
                        received.count, ": both must pass the same number");
  }
  const auto place = [](PartRecord part) { return part.is_in_memory ? "the lane's memory" : "other memory"; };
  return absl::StrCat("rank ", sender, " sends from ", place(sent), " to rank ", receiver, ", which receives in ",
                      place(received), ": both must use the lane's memory, or neither");
}

// Whether one buffer of the operation may be a part of the other.
bool MayBeInPlace(OpType op) { return op == OpType::kAllgather || op == OpType::kReduceScatter; }

std::string InWords(RankId rank, const FlightEvent& event, absl::string_view call) {
  const absl::string_view what = absl::StripPrefix(event.name, call);
  if (absl::StartsWith(what, kRefused)) return absl::StrCat("rank ", rank, " has ", what);
  return absl::StrCat("rank ", rank, " has called ", Name(event.op), " (", what, ")");
}

}  // namespace

CallerLane::CallerLane(Options options) : options_(std::move(options)), calls_(options_.earlier_calls) {}

absl::StatusOr<std::unique_ptr<CallerLane>> CallerLane::Create(Options options) {
  std::unique_ptr<CallerLane> lane(new CallerLane(std::move(options)));
  CallerLane* const self = lane.get();
  self->known_failure_ = std::make_shared<const std::function<absl::Status()>>([self] { return self->failure(); });
  DeviceWatch::Options watch = self->options_.watch;
  watch.transport_failure = [self] { return self->options_.transport->failure(); };
  watch.objection = [self](const DeviceCompletion& completion) { return self->Objection(completion); };
  watch.carried_out = [self](const DeviceCompletion& completion) { self->CheckEnded(completion); };
  watch.abort = [self] {
    self->HoldCaptured();
    self->options_.transport->Abort();
  };
  RONDA_ASSIGN_OR_RETURN(lane->watch_, DeviceWatch::Start(std::move(watch)));
  return lane;
}

CallerLane::~CallerLane() {
  if (watch_ != nullptr) {
    Close(failure());
  } else {
    options_.transport->Abort();  // Create has failed on this rank: no other member ends the transport now
  }
}

void CallerLane::Close(const absl::Status& status) {
  const std::shared_ptr<DeviceCompletion> call = last();
  const bool is_idle = call == nullptr || call->done();
  watch_->Stop(status.ok() ? absl::CancelledError("the lane has been closed") : status);
  if (!status.ok()) HoldCaptured();
  if (!status.ok() || !is_idle) options_.transport->Abort();
  if (const std::shared_ptr<CapturedCalls> captured = captured_calls(); captured != nullptr) captured->Stop();
  if (options_.memory.ok()) (*options_.memory)->Close();
}

absl::Status CallerLane::failure() const {
  absl::Status failure = options_.watch.job_failure();
  return failure.ok() ? options_.transport->failure() : failure;
}

absl::StatusOr<bool> CallerLane::Carries(Submission& submission) const {
  submission.request.name = "ronda/lane/next";  // errors leave it out
  absl::Status checked = CheckSubmission(submission, options_.submitter);
  if (!checked.ok() && MayBeInPlace(submission.request.op)) {
    // Checks the rest without the output.
    const size_t output_bytes = std::exchange(submission.output_bytes, 0);
    const absl::Status rest = CheckSubmission(submission, options_.submitter);
    submission.output_bytes = output_bytes;
    if (rest.ok() && IsInPlace(submission)) checked = absl::OkStatus();
  }
  RONDA_RETURN_IF_ERROR(checked);
  submission.request.name.clear();
  return CarriesKind(submission);
}

bool CallerLane::IsInPlace(const Submission& submission) const {
  if (!CarriesKind(submission)) return false;
  const auto position = static_cast<size_t>(*options_.members->PositionOf(options_.watch.rank));
  const auto* const input = static_cast<const std::byte*>(submission.input);
  const auto* const output = static_cast<const std::byte*>(submission.output);
  return submission.request.op == OpType::kAllgather ? input == output + position * TensorBytes(submission.request)
                                                     : output == input + position * submission.output_bytes;
}

bool CallerLane::CarriesKind(const Submission& submission) const {
  const TensorRequest& request = submission.request;
  const auto members = static_cast<size_t>(options_.members->size());
  if (request.function != TensorRequest::Function::kOperation || !request.refusal.empty()) return false;
  const size_t bytes = TensorBytes(request);
  switch (request.op) {
    case OpType::kBroadcast:
      return true;
    case OpType::kAllreduce:
    case OpType::kReduce:
      return Reduces(request) && submission.error_feedback == Submission::ErrorFeedback::kOff;
    // In an allgather the members may contribute different numbers of rows. An output of exactly this size shows that
    // the caller expects the same number from every member.
    case OpType::kAllgather:
      return submission.output != nullptr && submission.output_bytes == bytes * members;
    case OpType::kReduceScatter:
      return Reduces(request) && !request.shape.empty() && submission.output != nullptr &&
             submission.output_bytes * members == bytes && static_cast<size_t>(request.shape[0]) % members == 0;
    default:
      return false;
  }
}

bool CallerLane::Reduces(const TensorRequest& request) const {
  if (request.wire != WireFormat::kNone || request.overflow == TensorRequest::Overflow::kDetected) return false;
  if (request.reduction == Reduction::kAdasum || request.postscale != 1.0) return false;
  return options_.transport->Reduces(request.dtype, TraitsOf(request.reduction).kernel, ScaleOf(request));
}

kernels::Scale CallerLane::ScaleOf(const TensorRequest& request) const {
  return {.multiplier = request.prescale,
          .divisor = request.reduction == Reduction::kAverage ? options_.members->size() : 1};
}

// NCCL uses the input of an allgather and the output of a reducescatter only on the rank itself. Their offsets differ
// between the ranks if the call is in place. In a reduce only the root has an output.
std::string CallerLane::PlacesOf(const Submission& submission) const {
  if (!options_.memory.ok() || ElementCount(submission.request.shape) == 0) return "";
  const auto place = [&](const void* data) {
    const std::optional<size_t> offset = (*options_.memory)->OffsetOf(data);
    return offset.has_value() ? absl::StrCat(*offset) : std::string(kOutside);
  };
  const auto side = [&](const void* data) { return std::string(IsInMemory(data) ? kInside : kOutside); };
  const OpType op = submission.request.op;
  std::string from = op == OpType::kAllgather ? side(submission.input) : place(submission.input);
  std::string to = op == OpType::kReduceScatter ? side(submission.output) : place(submission.output);
  if (op == OpType::kBroadcast) from = to;
  if (op == OpType::kReduce) to = from;
  if (from == kOutside && to == kOutside) return "";
  return from == to ? absl::StrCat(", memory ", from) : absl::StrCat(", memory ", from, " to ", to);
}

bool CallerLane::IsInMemory(const void* data) const {
  return options_.memory.ok() && (*options_.memory)->OffsetOf(data).has_value();
}

std::string CallerLane::LabelOf(uint64_t number, const Submission& submission) const {
  const TensorRequest& request = submission.request;
  std::string label = absl::StrCat(CallName(number, options_.process_set), CountOf(request, options_.members->size()),
                                   " x ", Name(request.dtype), PlacesOf(submission));
  if (TraitsOf(request.op).has_root()) absl::StrAppend(&label, Preposition(request.op), request.root);
  if (!TraitsOf(request.op).reduces) return label;
  absl::StrAppend(&label, ", ", Name(request.reduction));
  if (request.prescale != 1.0) absl::StrAppend(&label, ", scaled by ", request.prescale);
  return label;
}

std::string CallerLane::LabelOf(uint64_t number, const LaneExchange& exchange) const {
  std::string label = absl::StrCat(CallName(number, options_.process_set), "parts of ", Name(exchange.dtype));
  if (TraitsOf(exchange.op).has_root()) absl::StrAppend(&label, Preposition(exchange.op), exchange.root);
  return label;
}

DirectCall CallerLane::CallOf(const Submission& submission) const {
  const TensorRequest& request = submission.request;
  const bool has_root = TraitsOf(request.op).has_root();
  const bool has_output = request.op != OpType::kReduce || request.root == options_.watch.rank;
  return {.info = {.label = request.name, .op = request.op, .limits = request.limits.value_or(options_.limits)},
          .input = request.op == OpType::kBroadcast ? submission.output : submission.input,
          .output = has_output ? submission.output : nullptr,
          .count = CountOf(request, options_.members->size()),
          .dtype = request.dtype,
          .reduction = TraitsOf(request.reduction).kernel,
          .scale = ScaleOf(request),
          .root = has_root ? options_.members->PositionOf(request.root).value_or(0) : 0};
}

absl::StatusOr<std::shared_ptr<Handle>> CallerLane::Submit(Submission* submission) {
  TensorRequest& request = submission->request;
  const MutexLock lock(&calls_mu_);
  request.name = FitForRecorder(LabelOf(calls_ + 1, *submission));
  std::vector<const void*> buffers;
  for (const void* buffer : {submission->input, static_cast<const void*>(submission->output)}) {
    if (buffer != nullptr && (buffers.empty() || buffers.front() != buffer)) buffers.push_back(buffer);
  }
  return Start({.call = CallOf(*submission),
                .bytes = TensorBytes(request),
                .stream = submission->stream,
                .result = ResultOf(*submission)},
               buffers);
}

absl::StatusOr<std::shared_ptr<Handle>> CallerLane::Exchange(const LaneExchange& exchange) {
  RONDA_RETURN_IF_ERROR(CheckExchange(exchange, *options_.members, options_.watch.rank));
  const MutexLock lock(&calls_mu_);
  const std::string label = FitForRecorder(LabelOf(calls_ + 1, exchange));
  const CallInfo info = {.label = label, .op = exchange.op, .limits = exchange.limits.value_or(options_.limits)};
  return Start({.call = {.info = info, .dtype = exchange.dtype, .sends = exchange.sends, .receives = exchange.receives},
                .bytes = BytesSent(exchange),
                .stream = exchange.stream},
               BuffersOf(exchange));
}

absl::StatusOr<std::shared_ptr<Handle>> CallerLane::Start(Prepared prepared, absl::Span<const void* const> buffers) {
  const DirectCall& call = prepared.call;
  std::shared_ptr<Handle> handle = MakeHandle(std::string(call.info.label));
  if (const absl::Status known = failure(); !known.ok()) {
    handle->Complete(known);
    return handle;
  }
  const Device::Current current(options_.device.get());
  const absl::StatusOr<RankDevice::Ready> ready = options_.rank_device->AdmitCall(buffers, prepared.stream);
  if (!ready.ok()) return AboutTensor(std::string(call.info.label), ready.status());
  if (*ready == nullptr) return Capture(std::move(prepared));
  ++calls_;
  AwaitFollowed();
  prepared.result.completion = Watch(call, prepared.bytes);
  if (const absl::Status status = Launch(call, **ready, *prepared.result.completion); !status.ok()) {
    options_.watch.fail_job(status);
    const absl::Status failure = options_.watch.job_failure();
    prepared.result.completion->Settle(failure.ok() ? status : failure);
  }
  handle->Complete(std::move(prepared.result));
  return handle;
}

absl::StatusOr<std::shared_ptr<Handle>> CallerLane::Capture(Prepared prepared) {
  std::shared_ptr<CapturedCalls> captured = captured_calls();
  if (captured == nullptr) {
    RONDA_ASSIGN_OR_RETURN(
        captured, CapturedCalls::Create(
                      {.device = options_.device, .rank_device = options_.rank_device, .watch = options_.watch}));
    const MutexLock lock(&mu_);
    captured_ = captured;
  }
  const std::string label = FitForRecorder(absl::StrCat(prepared.call.info.label, kCaptured));
  prepared.call.info.label = label;
  std::shared_ptr<Handle> handle = MakeHandle(label);
  // The call counts even if the capture fails: the other ranks capture it too, and count it.
  ++calls_;
  Record(FlightKind::kSubmitted, prepared.call, prepared.bytes);
  absl::StatusOr<std::shared_ptr<const CapturedCall>> call =
      captured->Capture(prepared.call, *options_.transport, prepared.stream);
  if (!call.ok()) return AboutTensor(label, call.status());
  // No rank waits during a capture, so only the last rank to capture is sure to find a difference.
  if (const absl::Status difference = Compare(prepared.call.info.op, label); !difference.ok()) {
    options_.watch.fail_job(difference);
    handle->Complete(difference);
    return handle;
  }
  prepared.result.captured = *std::move(call);
  handle->Complete(std::move(prepared.result));
  return handle;
}

void CallerLane::HoldCaptured() {
  if (const std::shared_ptr<CapturedCalls> captured = captured_calls(); captured != nullptr) captured->HoldDevice();
}

std::shared_ptr<CapturedCalls> CallerLane::captured_calls() const {
  const MutexLock lock(&mu_);
  return captured_;
}

std::shared_ptr<Handle> CallerLane::MakeHandle(std::string label) const {
  return std::make_shared<Handle>(options_.callbacks, /*progress=*/nullptr,
                                  std::make_shared<const std::string>(std::move(label)));
}

std::shared_ptr<DeviceCompletion> CallerLane::Watch(const DirectCall& call, uint64_t bytes) {
  const CallInfo& info = call.info;
  auto completion = std::make_shared<DeviceCompletion>(DeviceCompletion::Options{.label = std::string(info.label),
                                                                                 .op = info.op,
                                                                                 .bytes = bytes,
                                                                                 .limits = info.limits,
                                                                                 .device = options_.device,
                                                                                 .callbacks = options_.callbacks,
                                                                                 .failure = known_failure_,
                                                                                 .waiters = options_.watch.waiters});
  Record(FlightKind::kStarted, call, bytes);
  {
    const MutexLock lock(&mu_);
    last_ = completion;
  }
  watch_->Watch(completion);
  return completion;
}

void CallerLane::Record(FlightKind kind, const DirectCall& call, uint64_t bytes) const {
  const CallInfo& info = call.info;
  const auto record_parts = [&](absl::string_view text) {
    own_flights().Record(FlightKind::kSubmitted, info.op, text, bytes);
  };
  const auto is_in_memory = [&](const void* data) { return IsInMemory(data); };
  DescribeParts(CallPart(info.label), PartWay::kSends, call.sends, is_in_memory, record_parts);
  DescribeParts(CallPart(info.label), PartWay::kReceives, call.receives, is_in_memory, record_parts);
  own_flights().Record(kind, info.op, info.label, bytes);
}

absl::Status CallerLane::Launch(const DirectCall& call, const ReadyPoint& ready, DeviceCompletion& completion) {
  // The profiler's range has the same name as the call's event in the timeline.
  const DeviceRange range(options_.device->plugin(),
                          absl::StrCat(absl::AsciiStrToUpper(Name(call.info.op)), " ", call.info.label));
  const StreamHandle stream = options_.stream->handle();
  RONDA_RETURN_IF_ERROR(ready.OrderBefore(stream));
  RONDA_RETURN_IF_ERROR(options_.transport->Run(call));
  RONDA_ASSIGN_OR_RETURN(std::unique_ptr<DeviceEvent> end, options_.device->NewEvent());
  RONDA_RETURN_IF_ERROR(end->Record(stream));
  completion.Launch(std::move(end));
  watch_->RecordLaunch();
  return absl::OkStatus();
}

OperationResult CallerLane::ResultOf(const Submission& submission) const {
  const TensorRequest& request = submission.request;
  const auto members = static_cast<size_t>(options_.members->size());
  if (!TraitsOf(request.op).by_rows) return {};
  OperationResult result = {.callers = submission.output};
  if (request.op == OpType::kAllgather) {
    result.first_dims.assign(members, request.shape.front());
    result.number = options_.members->size();
  } else {
    result.first_dims = {request.shape.front() / static_cast<int64_t>(members)};
  }
  return result;
}

void CallerLane::Refuse(absl::string_view why) {
  const MutexLock lock(&calls_mu_);
  own_flights().Record(FlightKind::kFailed, OpType::kBarrier,
                       absl::StrCat(CallName(++calls_, options_.process_set), kRefused, why), 0);
}

std::shared_ptr<DeviceCompletion> CallerLane::last() const {
  const MutexLock lock(&mu_);
  return last_;
}

void CallerLane::Drain() {
  const std::shared_ptr<DeviceCompletion> call = last();
  if (call == nullptr || !call->Wait().ok()) return;
  // The device has carried out all calls, so the watch will complete the earlier calls very soon.
  while (!watch_->idle()) absl::SleepFor(kPollInterval);
}

absl::Status CallerLane::OrderBefore(void* stream) {
  const MutexLock lock(&calls_mu_);  // so that the last call has been launched, or has failed
  const std::shared_ptr<DeviceCompletion> call = last();
  if (call == nullptr) return absl::OkStatus();
  WaitingStream waiting(stream);
  return call->OrderBefore(waiting);
}

void CallerLane::Follow(std::shared_ptr<Handle> operation) {
  const MutexLock lock(&calls_mu_);
  // Drops finished operations here, because a process set may run many operations of the engine without ever making a
  // direct call.
  followed_.erase(std::remove_if(followed_.begin(), followed_.end(), [](const auto& each) { return each->done(); }),
                  followed_.end());
  followed_.push_back(std::move(operation));
}

void CallerLane::AwaitFollowed() {
  // If an operation has failed, its caller gets the error from the handle.
  for (const std::shared_ptr<Handle>& operation : followed_) {
    operation->OrderBefore(options_.stream->handle()).IgnoreError();
  }
  followed_.clear();
}

void CallerLane::CheckEnded(const DeviceCompletion& completion) const {
  if (!IsExchange(completion.options().op) && !options_.memory.ok()) return;
  const absl::Status difference = Objection(completion);
  if (!difference.ok()) options_.watch.fail_job(difference);
}

absl::Status CallerLane::Compare(OpType op, absl::string_view label) const {
  const absl::string_view call = CallPart(label);
  std::vector<FlightEvent> own;
  if (IsExchange(op)) own = own_flights().Events(call);
  for (const RankId peer : options_.members->ranks()) {
    if (peer == options_.watch.rank) continue;
    const std::vector<FlightEvent> events = options_.watch.flights->Of(peer).Events(call);
    RONDA_RETURN_IF_ERROR(CompareLabels(op, label, peer, events));
    if (IsExchange(op)) RONDA_RETURN_IF_ERROR(CompareParts(op, label, peer, own, events));
  }
  return absl::OkStatus();
}

absl::Status CallerLane::CompareParts(OpType op, absl::string_view label, RankId peer,
                                      absl::Span<const FlightEvent> own, absl::Span<const FlightEvent> events) const {
  const absl::string_view call = CallPart(label);
  const RankId self = options_.watch.rank;
  const auto find = [&](RankId rank, PartWay way, RankId other) {
    return FindPart(rank == self ? own : events, call, way, *options_.members->PositionOf(other));
  };
  for (const auto& [sender, receiver] : {std::pair(self, peer), std::pair(peer, self)}) {
    const std::optional<PartRecord> sent = find(sender, PartWay::kSends, receiver);
    const std::optional<PartRecord> received = find(receiver, PartWay::kReceives, sender);
    if (!sent.has_value() || !received.has_value() || *sent == *received) continue;
    return absl::AbortedError(
        absl::StrCat("in ", call, ", ", Name(op), ": ", Contradiction(sender, *sent, receiver, *received)));
  }
  return absl::OkStatus();
}

absl::Status CallerLane::CompareLabels(OpType op, absl::string_view label, RankId peer,
                                       absl::Span<const FlightEvent> events) const {
  const absl::string_view call = label.substr(0, label.find(": ") + 2);
  for (const FlightEvent& event : events) {
    if (!absl::StartsWith(event.name, call) || (event.op == op && event.name == label)) continue;
    const FlightEvent mine = {.op = op, .name = std::string(label)};
    // The code is ABORTED, because the job ends as if the peer had died, unlike after a mismatch that the negotiation
    // finds.
    return absl::AbortedError(absl::StrCat(
        "in ", absl::StripSuffix(call, ": "), " ", InWords(options_.watch.rank, mine, call), ", and ",
        InWords(peer, event, call), ": all ranks of a process set must make the same calls in the same order"));
  }
  return absl::OkStatus();
}

std::shared_ptr<CallerLane> CallerLanes::Find(ProcessSetId process_set) const {
  const MutexLock lock(&mu_);
  const auto found = lanes_.find(process_set);
  return found == lanes_.end() ? nullptr : found->second;
}

absl::Status CallerLanes::Add(ProcessSetId process_set, std::shared_ptr<CallerLane> lane) {
  const MutexLock lock(&mu_);
  RONDA_RETURN_IF_ERROR(closed_);
  lanes_[process_set] = std::move(lane);
  return absl::OkStatus();
}

std::shared_ptr<CallerLane> CallerLanes::Remove(ProcessSetId process_set) {
  const MutexLock lock(&mu_);
  return ExtractLocked(process_set);
}

std::shared_ptr<CallerLane> CallerLanes::ExtractLocked(ProcessSetId process_set) {
  auto node = lanes_.extract(process_set);
  if (node.empty()) return nullptr;
  earlier_calls_[process_set] = node.mapped()->calls();
  return std::move(node.mapped());
}

uint64_t CallerLanes::EarlierCalls(ProcessSetId process_set) const {
  const MutexLock lock(&mu_);
  const auto found = earlier_calls_.find(process_set);
  return found == earlier_calls_.end() ? 0 : found->second;
}

CallerLanes::~CallerLanes() {
  std::thread ender;
  {
    const MutexLock lock(&mu_);
    ender = std::move(ender_);
  }
  if (ender.joinable()) ender.join();
}

void CallerLanes::Retire(ProcessSetId process_set) {
  const MutexLock lock(&mu_);
  std::shared_ptr<CallerLane> lane = ExtractLocked(process_set);
  if (lane == nullptr) return;
  retired_.push_back(std::move(lane));
  if (ends_retired_) return;
  if (ender_.joinable()) ender_.join();  // its last act was to find retired_ empty
  try {
    ender_ = std::thread([this] { EndRetired(); });
    ends_retired_ = true;
  } catch (const std::system_error&) {
    // The system could not create a thread. The next Retire() tries again; otherwise the lane ends with the job.
  }
}

void CallerLanes::EndRetired() {
  while (true) {
    std::shared_ptr<CallerLane> lane;
    {
      const MutexLock lock(&mu_);
      if (retired_.empty()) {
        ends_retired_ = false;
        return;
      }
      lane = retired_.front();
    }
    lane->Drain();
    const MutexLock lock(&mu_);
    retired_.pop_front();
  }  // here the lane ends
}

std::vector<std::shared_ptr<CallerLane>> CallerLanes::All() const {
  const MutexLock lock(&mu_);
  std::vector<std::shared_ptr<CallerLane>> all(retired_.begin(), retired_.end());
  for (const auto& [process_set, lane] : lanes_) all.push_back(lane);
  return all;
}

bool CallerLanes::idle() const {
  for (const std::shared_ptr<CallerLane>& lane : All()) {
    if (!lane->idle()) return false;
  }
  return true;
}

void CallerLanes::Close(const absl::Status& status) {
  {
    const MutexLock lock(&mu_);
    closed_ = status.ok() ? absl::CancelledError("the job has been shut down") : status;
  }
  for (const std::shared_ptr<CallerLane>& lane : All()) lane->Close(status);
}

}  // namespace ronda
