// SPDX-License-Identifier: Apache-2.0

#include "runtime/negotiation/recording.h"

#include <cerrno>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/files.h"
#include "runtime/base/status_macros.h"

namespace ronda {
namespace {

constexpr absl::string_view kMagic = "RONDANEG";
constexpr uint64_t kVersion = 3;
constexpr size_t kEventHeader = 1 + 8 + 4;  // kind, time, rank

template <typename T>
void AppendNumber(T value, std::string* bytes) {
  for (size_t i = 0; i < sizeof(T); ++i) bytes->push_back(static_cast<char>(static_cast<uint64_t>(value) >> (8 * i)));
}

// Removes a number from the beginning of `bytes` and returns it; nullopt if `bytes` is too short.
template <typename T>
std::optional<T> TakeNumber(absl::string_view* bytes) {
  if (bytes->size() < sizeof(T)) return std::nullopt;
  uint64_t value = 0;
  for (size_t i = 0; i < sizeof(T); ++i) value |= uint64_t{static_cast<uint8_t>((*bytes)[i])} << (8 * i);
  bytes->remove_prefix(sizeof(T));
  return static_cast<T>(value);
}

// Removes one event from the beginning of `bytes` and returns it; nullopt if the event is incomplete.
std::optional<NegotiationEvent> TakeEvent(absl::string_view* bytes) {
  const std::optional<uint32_t> length = TakeNumber<uint32_t>(bytes);
  if (!length || *length < kEventHeader || bytes->size() < *length) return std::nullopt;
  absl::string_view body = bytes->substr(0, *length);
  bytes->remove_prefix(*length);
  NegotiationEvent event;
  event.kind = static_cast<NegotiationEvent::Kind>(*TakeNumber<uint8_t>(&body));
  event.time = absl::FromUnixNanos(*TakeNumber<int64_t>(&body));
  event.rank = *TakeNumber<int32_t>(&body);
  event.bytes = std::string(body);
  return event;
}

std::string Summary(const ResponseList& list) {
  std::string text = absl::StrCat(list.errors.size(), " errors");
  for (const TensorError& error : list.errors) absl::StrAppend(&text, ", '", error.name, "': ", error.status.message());
  absl::StrAppend(&text, "; ", list.buckets.size(), " buckets");
  for (const Bucket& bucket : list.buckets) {
    absl::StrAppend(&text, " [");
    for (const Execution& execution : bucket.executions) {
      const CacheId* id = std::get_if<CacheId>(&execution);
      absl::StrAppend(&text, id != nullptr ? absl::StrCat("#", *id) : std::get<Response>(execution).request.name, " ");
    }
    absl::StrAppend(&text, "without ", bucket.joined.size(), " ranks]");
  }
  if (list.schedule) absl::StrAppend(&text, "; a schedule of ", list.schedule->buckets.size(), " buckets");
  return absl::StrCat(text, list.job == ResponseList::Job::kEnds ? "; the job ends" : "");
}

absl::Status Compare(size_t number, ResponseList recorded, const ResponseList& replayed) {
  recorded.settings.reset();  // the settings do not come from the negotiator
  if (Encode(recorded) == Encode(replayed)) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("event ", number, ": the recorded list has ", Summary(recorded),
                                          "; the replayed one has ", Summary(replayed)));
}

// Replays an event that consists only of numbers.
absl::Status ReplayNumbers(size_t number, const NegotiationEvent& event, Negotiator* negotiator) {
  absl::string_view bytes = event.bytes;
  const bool unlocks = event.kind == NegotiationEvent::Kind::kUnlock;
  const std::optional<uint64_t> first = TakeNumber<uint64_t>(&bytes);
  const std::optional<uint64_t> second = TakeNumber<uint64_t>(&bytes);
  if (!first || !second || (unlocks && !negotiator->locked())) {
    return absl::InvalidArgumentError(absl::StrCat("event ", number, " is damaged"));
  }
  if (unlocks) {
    negotiator->Unlock({.rounds = *first, .buckets = *second});
  } else {
    negotiator->SetBucketSizes({.threshold = *first, .min_bucket_bytes = *second});
  }
  return absl::OkStatus();
}

absl::Status ReplayEvent(size_t number, const NegotiationEvent& event, size_t cache_capacity, Negotiator* negotiator) {
  switch (event.kind) {
    case NegotiationEvent::Kind::kReport: {
      RONDA_ASSIGN_OR_RETURN(const RankReport report, DecodeRankReport(event.bytes, cache_capacity));
      return negotiator->Add(event.rank, report, event.time);
    }
    case NegotiationEvent::Kind::kFailure: {
      RONDA_ASSIGN_OR_RETURN(const ResponseList list, DecodeResponseList(event.bytes, cache_capacity));
      for (const TensorError& error : list.errors) negotiator->Fail(error.key(), error.status);
      return absl::OkStatus();
    }
    case NegotiationEvent::Kind::kUnlock:
    case NegotiationEvent::Kind::kSizes:
      return ReplayNumbers(number, event, negotiator);
    case NegotiationEvent::Kind::kList: {
      RONDA_ASSIGN_OR_RETURN(ResponseList list, DecodeResponseList(event.bytes, cache_capacity));
      return Compare(number, std::move(list), negotiator->TakeResponses());
    }
  }
  return absl::InvalidArgumentError(absl::StrCat("event ", number, " is of no known kind"));
}

}  // namespace

NegotiationEvent NegotiationEvent::Failure(TensorKeyView tensor, const absl::Status& status, absl::Time now) {
  ResponseList list;
  list.errors.push_back({std::string(tensor.name), tensor.process_set, status, {}});
  return {Kind::kFailure, now, 0, Encode(list)};
}

NegotiationEvent NegotiationEvent::Unlock(const ScheduleProgress& progress, absl::Time now) {
  NegotiationEvent event = {.kind = Kind::kUnlock, .time = now};
  AppendNumber(progress.rounds, &event.bytes);
  AppendNumber(progress.buckets, &event.bytes);
  return event;
}

NegotiationEvent NegotiationEvent::Sizes(const Negotiator::BucketSizes& sizes, absl::Time now) {
  NegotiationEvent event = {.kind = Kind::kSizes, .time = now};
  AppendNumber(static_cast<uint64_t>(sizes.threshold), &event.bytes);
  AppendNumber(static_cast<uint64_t>(sizes.min_bucket_bytes), &event.bytes);
  return event;
}

std::string EncodeHeader(const Negotiator::Options& options) {
  std::string bytes(kMagic);
  AppendNumber(kVersion, &bytes);
  AppendNumber(static_cast<int64_t>(options.world_size), &bytes);
  AppendNumber(static_cast<uint64_t>(options.cache_capacity), &bytes);
  AppendNumber(static_cast<uint64_t>(options.fusion.threshold), &bytes);
  AppendNumber(absl::ToInt64Nanoseconds(options.limits.warning), &bytes);
  AppendNumber(absl::ToInt64Nanoseconds(options.limits.deadline), &bytes);
  AppendNumber(static_cast<int64_t>(options.schedule.identical_steps), &bytes);
  AppendNumber(static_cast<uint64_t>(options.schedule.min_bucket_bytes), &bytes);
  AppendNumber(absl::ToInt64Nanoseconds(options.schedule.hold), &bytes);
  return bytes;
}

std::string Encode(const NegotiationEvent& event) {
  std::string bytes;
  AppendNumber(static_cast<uint32_t>(kEventHeader + event.bytes.size()), &bytes);
  AppendNumber(static_cast<uint8_t>(event.kind), &bytes);
  AppendNumber(absl::ToUnixNanos(event.time), &bytes);
  AppendNumber(static_cast<int32_t>(event.rank), &bytes);
  return absl::StrCat(bytes, event.bytes);
}

absl::StatusOr<Recording> DecodeRecording(absl::string_view bytes) {
  constexpr int kNumbers = 9;
  if (bytes.substr(0, kMagic.size()) != kMagic || bytes.size() < kMagic.size() + kNumbers * sizeof(uint64_t)) {
    return absl::InvalidArgumentError("this is no recording of a negotiation");
  }
  bytes.remove_prefix(kMagic.size());
  const uint64_t version = *TakeNumber<uint64_t>(&bytes);
  if (version != kVersion) {
    return absl::InvalidArgumentError(
        absl::StrCat("a recording of version ", version, "; this program reads version ", kVersion));
  }
  Recording recording;
  const int64_t world_size = *TakeNumber<int64_t>(&bytes);
  if (world_size <= 0 || world_size > int64_t{1} << 20) {
    return absl::InvalidArgumentError(absl::StrCat("a recording of a job of ", world_size, " ranks"));
  }
  recording.options.world_size = static_cast<int>(world_size);
  recording.options.cache_capacity = *TakeNumber<uint64_t>(&bytes);
  recording.options.fusion.threshold = *TakeNumber<uint64_t>(&bytes);
  recording.options.limits.warning = absl::Nanoseconds(*TakeNumber<int64_t>(&bytes));
  recording.options.limits.deadline = absl::Nanoseconds(*TakeNumber<int64_t>(&bytes));
  const int64_t identical_steps = *TakeNumber<int64_t>(&bytes);
  if (identical_steps < 0 || identical_steps > int64_t{1} << 20) {
    return absl::InvalidArgumentError(absl::StrCat("a recording with schedules after ", identical_steps, " steps"));
  }
  recording.options.schedule.identical_steps = static_cast<int>(identical_steps);
  recording.options.schedule.min_bucket_bytes = *TakeNumber<uint64_t>(&bytes);
  recording.options.schedule.hold = absl::Nanoseconds(*TakeNumber<int64_t>(&bytes));
  while (std::optional<NegotiationEvent> event = TakeEvent(&bytes)) recording.events.push_back(*std::move(event));
  return recording;
}

absl::Status Replay(const Recording& recording) {
  Negotiator negotiator(recording.options);
  for (size_t number = 0; number < recording.events.size(); ++number) {
    RONDA_RETURN_IF_ERROR(ReplayEvent(number, recording.events[number], recording.options.cache_capacity, &negotiator));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<RecordingFile>> RecordingFile::Create(const std::string& path,
                                                                     const Negotiator::Options& options) {
  std::FILE* file = std::fopen(path.c_str(), "wbe");
  if (file == nullptr) return absl::ErrnoToStatus(errno, absl::StrCat("cannot create ", path));
  std::unique_ptr<RecordingFile> recording(new RecordingFile(path, file));
  RONDA_RETURN_IF_ERROR(recording->Write(EncodeHeader(options)));
  return recording;
}

absl::Status RecordingFile::Write(const std::string& bytes) {
  if (std::fwrite(bytes.data(), 1, bytes.size(), file_.get()) == bytes.size() && std::fflush(file_.get()) == 0) {
    return absl::OkStatus();
  }
  return absl::UnavailableError(absl::StrCat("cannot write the negotiation's recording ", path_));
}

absl::StatusOr<Recording> ReadRecording(const std::string& path) {
  RONDA_ASSIGN_OR_RETURN(const std::string bytes, ReadFile(path));
  return DecodeRecording(bytes);
}

}  // namespace ronda
