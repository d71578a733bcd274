// SPDX-License-Identifier: Apache-2.0

#include "runtime/monitor/timeline/timeline.h"

#include <algorithm>
#include <exception>
#include <new>
#include <system_error>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "runtime/base/logging.h"
#include "runtime/base/status_macros.h"

namespace ronda {
namespace {

constexpr absl::Duration kLinger = absl::Milliseconds(50);
constexpr int kMissingRow = 1;
// Separates the elements of a batch. Never occurs in a name, because newlines in names are escaped.
constexpr absl::string_view kSeparator = ",\n{";

}  // namespace

absl::StatusOr<std::unique_ptr<TimelineWriter>> TimelineWriter::Start(const Options& options, EventQueue* queue) {
  RONDA_ASSIGN_OR_RETURN(auto file, TraceFile::Create(PathOfRank(options.path, options.rank), options.most_bytes));
  queue->Resume();
  queue->Drain([](const TimelineEvent&) {});
  queue->TakeDropped();
  std::unique_ptr<TimelineWriter> writer(new TimelineWriter(options, std::move(file), queue));
  try {
    writer->thread_ = std::thread([self = writer.get()] { self->Run(); });
  } catch (const std::system_error& error) {
    return absl::ResourceExhaustedError(absl::StrCat("no thread to write a timeline: ", error.what()));
  }
  return writer;
}

TimelineWriter::TimelineWriter(const Options& options, std::unique_ptr<TraceFile> file, EventQueue* queue)
    : rank_(options.rank),
      file_(std::move(file)),
      queue_(queue),
      builder_({.rank = options.rank, .host = options.host}) {}

TimelineWriter::~TimelineWriter() {
  if (!thread_.joinable()) return;
  stopping_.store(true);
  queue_->Interrupt();
  thread_.join();
}

// If the standard library throws an exception, usually because memory has run out, the timeline ends but the job
// continues.
void TimelineWriter::Run() {
  try {
    while (!stopping_.load()) {
      WriteBatch();
      queue_->AwaitFirst();
      queue_->AwaitMore(kLinger);
    }
    WriteBatch();
  } catch (const std::exception& error) {
    Log(LogLevel::kWarning, rank_, "the timeline ends here: an exception in the thread that writes it");
  }
}

void TimelineWriter::WriteBatch() {
  const uint64_t missing_before = missing_;
  queue_->Drain([this](const TimelineEvent& event) {
    last_time_ = std::max(last_time_, event.time + event.duration);
    if (state_ == State::kWriting) {
      builder_.Add(event);
    } else {
      ++missing_;
    }
  });
  missing_ += queue_->TakeDropped();
  if (state_ == State::kBroken || (state_ == State::kFull && missing_ == missing_before)) return;
  const std::string elements = state_ == State::kWriting ? builder_.TakeFinished() : "";
  const std::string end = End();
  if (state_ == State::kWriting && elements.size() + end.size() > file_->room()) return WriteWhatFits(elements);
  Write(elements, end);
}

void TimelineWriter::WriteWhatFits(absl::string_view elements) {
  state_ = State::kFull;
  Log(LogLevel::kWarning, rank_,
      absl::StrCat("the timeline ", file_->path(), " is as large as it may be; what comes now is only counted"));
  const size_t end = elements.size() <= file_->room() ? elements.size() : elements.rfind(kSeparator, file_->room());
  const absl::string_view left_out = elements.substr(std::min(end, elements.size()));
  missing_ += static_cast<uint64_t>(std::count(left_out.begin(), left_out.end(), '\n'));
  Write(elements.substr(0, end), End());
}

std::string TimelineWriter::End() const {
  return absl::StrCat(state_ == State::kWriting ? builder_.Unfinished() : "", Missing());
}

std::string TimelineWriter::Missing() const {
  const uint64_t missing = missing_ + builder_.left_out();
  if (missing == 0) return "";
  TraceText text(rank_, TraceText::Start::kContinues);
  text.Mark(kMissingRow, "MISSING_EVENTS", last_time_, TraceArgs().Add("count", missing));
  return text.Take();
}

void TimelineWriter::Write(absl::string_view elements, absl::string_view end) {
  const absl::Status status = file_->Write(elements, end);
  if (status.ok()) return;
  Log(LogLevel::kWarning, rank_, absl::StrCat("the timeline ends here: ", status.message()));
  state_ = State::kBroken;
}

namespace {

// The number of events in the queue, which takes 2 MiB. A step of 5,000 tensors has about as many events; so many may
// arrive while the writer does not get a CPU.
constexpr size_t kEvents = size_t{1} << 14;

}  // namespace

absl::Status Timeline::Start(const TimelineWriter::Options& options) {
  {
    MutexLock lock(&mu_);
    while (state_ == State::kChanging) changed_.Wait(&mu_);
    if (state_ == State::kOn) {
      return absl::FailedPreconditionError(
          absl::StrCat("a timeline is being written to ", writer_->path(), " already: stop it first"));
    }
    state_ = State::kChanging;
  }
  auto writer = StartWriter(options);
  const absl::Status status = writer.status();
  if (status.ok()) {
    writer_ = *std::move(writer);
    queue_.store(memory_.get(), std::memory_order_release);
  }
  MutexLock lock(&mu_);
  state_ = status.ok() ? State::kOn : State::kOff;
  changed_.NotifyAll();
  return status;
}

absl::StatusOr<std::unique_ptr<TimelineWriter>> Timeline::StartWriter(const TimelineWriter::Options& options) {
  try {
    if (memory_ == nullptr) memory_ = std::make_unique<EventQueue>(kEvents);
    return TimelineWriter::Start(options, memory_.get());
  } catch (const std::bad_alloc&) {
    return out_of_memory_;
  }
}

void Timeline::Stop() {
  {
    MutexLock lock(&mu_);
    while (state_ == State::kChanging) changed_.Wait(&mu_);
    if (state_ == State::kOff) return;
    state_ = State::kChanging;
  }
  queue_.store(nullptr, std::memory_order_relaxed);
  writer_.reset();
  MutexLock lock(&mu_);
  state_ = State::kOff;
  changed_.NotifyAll();
}

}  // namespace ronda
