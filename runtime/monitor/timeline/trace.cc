// SPDX-License-Identifier: Apache-2.0

#include "runtime/monitor/timeline/trace.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "runtime/base/status_macros.h"

namespace ronda {
namespace {

void AppendQuoted(absl::string_view text, std::string* json) {
  json->push_back('"');
  for (const char c : text) {
    if (c == '"' || c == '\\') json->push_back('\\');
    if (static_cast<unsigned char>(c) < 0x20) {
      absl::StrAppendFormat(json, "\\u%04x", c);
    } else {
      json->push_back(c);
    }
  }
  json->push_back('"');
}

// Appends the key of a JSON member: `"name":`, with a leading comma unless it is the first member.
void AppendKey(absl::string_view name, std::string* json) {
  if (!json->empty()) json->push_back(',');
  AppendQuoted(name, json);
  json->push_back(':');
}

}  // namespace

TraceArgs& TraceArgs::Add(absl::string_view name, uint64_t value) {
  AppendKey(name, &json_);
  absl::StrAppend(&json_, value);
  return *this;
}

TraceArgs& TraceArgs::Add(absl::string_view name, absl::string_view value) {
  AppendKey(name, &json_);
  AppendQuoted(value, &json_);
  return *this;
}

void TraceText::Begin(const Head& head) {
  if (!is_first_) text_ += ",\n";
  is_first_ = false;
  absl::StrAppend(&text_, "{\"ph\":\"", head.phase, "\",\"pid\":", process_, ",\"tid\":", head.row, ",\"name\":");
  AppendQuoted(head.name, &text_);
}

void TraceText::End(const TraceArgs& args) {
  if (!args.json().empty()) absl::StrAppend(&text_, ",\"args\":{", args.json(), "}");
  text_ += "}";
}

// Appends a time in microseconds with three decimals. Viewers parse it as a double, which still resolves nanoseconds
// after 100 days.
void TraceText::AppendMicroseconds(absl::string_view field, int64_t nanoseconds) {
  const int64_t positive = nanoseconds < 0 ? 0 : nanoseconds;
  const int64_t fraction = positive % 1000;
  absl::StrAppend(&text_, ",\"", field, "\":", positive / 1000, ".", absl::Dec(fraction, absl::kZeroPad3));
}

void TraceText::NameProcess(absl::string_view name) {
  Begin({.phase = "M", .row = 0, .name = "process_name"});
  End(TraceArgs().Add("name", name));
  Begin({.phase = "M", .row = 0, .name = "process_sort_index"});
  End(TraceArgs().Add("sort_index", static_cast<uint64_t>(process_)));
}

void TraceText::NameRow(int row, absl::string_view name) {
  Begin({.phase = "M", .row = row, .name = "thread_name"});
  End(TraceArgs().Add("name", name));
  Begin({.phase = "M", .row = row, .name = "thread_sort_index"});
  End(TraceArgs().Add("sort_index", static_cast<uint64_t>(row)));
}

void TraceText::Span(int row, absl::string_view name, int64_t begin, int64_t end, const TraceArgs& args) {
  Begin({.phase = "X", .row = row, .name = name});
  AppendMicroseconds("ts", begin);
  AppendMicroseconds("dur", end - begin);
  End(args);
}

void TraceText::OpenSpan(int row, absl::string_view name, int64_t begin, const TraceArgs& args) {
  Begin({.phase = "B", .row = row, .name = name});
  AppendMicroseconds("ts", begin);
  End(args);
}

void TraceText::Mark(int row, absl::string_view name, int64_t time, const TraceArgs& args) {
  Begin({.phase = "i", .row = row, .name = name});
  text_ += ",\"s\":\"t\"";
  AppendMicroseconds("ts", time);
  End(args);
}

namespace {

constexpr int kCollectivesRow = 1;
constexpr int kDeviceRow = 2;
constexpr int kFirstTensorRow = 10;

// The names of the outcomes, in the order of BucketOutcome.
constexpr absl::string_view kOutcomes[] = {"done", "launched", "vetoed", "failed"};

std::string UpperName(OpType op) { return absl::AsciiStrToUpper(Name(op)); }

// Draws finished spans, and the beginnings of unfinished spans.
class Pen {
 public:
  Pen(int row, TraceText* text) : row_(row), text_(text) {}

  void Draw(absl::string_view name, int64_t begin, std::optional<int64_t> end, const TraceArgs& args = {}) const {
    if (end.has_value()) {
      text_->Span(row_, name, begin, *end, args);
    } else {
      text_->OpenSpan(row_, name, begin, args);
    }
  }

 private:
  const int row_;
  TraceText* const text_;
};

}  // namespace

TraceBuilder::TraceBuilder(const Options& options)
    : process_(options.rank), finished_(options.rank, TraceText::Start::kBegins) {
  finished_.NameProcess(absl::StrCat("rank ", options.rank, " (host ", options.host, ")"));
  finished_.NameRow(kCollectivesRow, "collectives");
}

void TraceBuilder::Add(const TimelineEvent& event) {
  switch (event.kind) {
    case TimelineKind::kSubmitted:
    case TimelineKind::kReported:
    case TimelineKind::kReady:
    case TimelineKind::kAgreed:
    case TimelineKind::kFailed:
    case TimelineKind::kBucketMember:
      return AddOfTensor(event);
    case TimelineKind::kBucketStarted:
    case TimelineKind::kBucketEnded:
    case TimelineKind::kWaiting:
    case TimelineKind::kCycle:
      return AddOfBucket(event);
    case TimelineKind::kDeviceBucket:
    case TimelineKind::kDevicePhase:
      return AddOfDevice(event);
  }
}

void TraceBuilder::AddOfTensor(const TimelineEvent& event) {
  Tensor* const tensor = Find(event);
  if (tensor == nullptr) {
    ++left_out_;
    return;
  }
  switch (event.kind) {
    case TimelineKind::kSubmitted:
      return Submit(event, tensor);
    case TimelineKind::kReported:
      if (tensor->phase == Phase::kIdle) Submit(event, tensor);
      tensor->phase = Phase::kNegotiating;
      tensor->was_negotiated = true;
      return;
    case TimelineKind::kReady:
      return finished_.Mark(tensor->row, absl::StrCat("rank ", event.number, " is ready"), event.time);
    case TimelineKind::kAgreed:
      if (tensor->phase != Phase::kNegotiating) return;
      tensor->phase = Phase::kQueued;
      tensor->agreed = event.time;
      return;
    case TimelineKind::kFailed:
      if (tensor->phase != Phase::kIdle) Draw(*tensor, event.time, TraceArgs().Add("outcome", "failed"), &finished_);
      tensor->phase = Phase::kIdle;
      return;
    default:
      if (tensor->phase == Phase::kIdle || !bucket_.has_value()) return;
      // A locked schedule may have started while the tensor was being negotiated.
      tensor->was_negotiated = tensor->phase == Phase::kQueued;
      tensor->phase = Phase::kRunning;
      tensor->started = bucket_->started;
      bucket_->members.push_back(tensor);
  }
}

TraceBuilder::Tensor* TraceBuilder::Find(const TimelineEvent& event) {
  const auto found = tensors_.find(event.tensor);
  if (found != tensors_.end()) return &found->second;
  if (tensors_.size() >= kMostTensors) return nullptr;
  Tensor& tensor = tensors_[event.tensor];
  tensor.row = kFirstTensorRow + static_cast<int>(tensors_.size()) - 1;
  tensor.name = std::string(event.name_text());
  finished_.NameRow(tensor.row, tensor.name);
  return &tensor;
}

void TraceBuilder::Submit(const TimelineEvent& event, Tensor* tensor) {
  tensor->op = event.op;
  tensor->dtype = event.dtype;
  tensor->bytes = event.bytes;
  tensor->phase = Phase::kSubmitted;
  tensor->was_negotiated = false;
  tensor->submitted = event.time;
}

void TraceBuilder::Draw(const Tensor& tensor, std::optional<int64_t> end, const TraceArgs& args, TraceText* text) {
  const Pen pen(tensor.row, text);
  const std::string op = UpperName(tensor.op);
  pen.Draw(tensor.name, tensor.submitted, end, args);
  // The times at which one part of the tensor's span ends and the next part begins.
  const std::optional<int64_t> started = tensor.phase == Phase::kRunning ? std::optional<int64_t>(tensor.started) : end;
  const std::optional<int64_t> agreed = tensor.phase >= Phase::kQueued ? std::optional<int64_t>(tensor.agreed) : end;
  if (tensor.was_negotiated) {
    pen.Draw(absl::StrCat("NEGOTIATE_", op), tensor.submitted, agreed);
    if (tensor.phase >= Phase::kQueued) pen.Draw("QUEUE", tensor.agreed, started);
  } else if (tensor.phase == Phase::kRunning) {
    pen.Draw("LOCKED", tensor.submitted, started);
  }
  if (tensor.phase != Phase::kRunning) return;
  pen.Draw(op, tensor.started, end, TraceArgs().Add("bytes", tensor.bytes).Add("dtype", Name(tensor.dtype)));
}

void TraceBuilder::AddOfBucket(const TimelineEvent& event) {
  switch (event.kind) {
    case TimelineKind::kBucketStarted:
      return StartBucket(event);
    case TimelineKind::kBucketEnded:
      return EndBucket(event);
    case TimelineKind::kWaiting:
      return finished_.Mark(kCollectivesRow, "WAITING", event.time, TraceArgs().Add("in", event.name_text()));
    default:
      return finished_.Mark(kCollectivesRow, "CYCLE_START", event.time);
  }
}

void TraceBuilder::StartBucket(const TimelineEvent& event) {
  bucket_.emplace(Bucket{.label = std::string(event.name_text()),
                         .op = event.op,
                         .dtype = event.dtype,
                         .bytes = event.bytes,
                         .tensors = event.number,
                         .started = event.time});
}

void TraceBuilder::EndBucket(const TimelineEvent& event) {
  if (!bucket_.has_value()) return;
  const absl::string_view outcome = kOutcomes[event.number];
  DrawBucket(*bucket_, event.time, outcome, &finished_);
  const bool is_vetoed = event.number == static_cast<int32_t>(BucketOutcome::kVetoed);
  for (Tensor* const tensor : bucket_->members) {
    // The tensors of a vetoed bucket are still in flight, so their spans do not end here.
    if (!is_vetoed) Draw(*tensor, event.time, TraceArgs().Add("outcome", outcome), &finished_);
    tensor->phase = is_vetoed ? Phase::kSubmitted : Phase::kIdle;
  }
  bucket_.reset();
}

void TraceBuilder::DrawBucket(const Bucket& bucket, std::optional<int64_t> end, absl::string_view outcome,
                              TraceText* text) {
  TraceArgs args;
  args.Add("bucket", bucket.label).Add("bytes", bucket.bytes).Add("tensors", static_cast<uint64_t>(bucket.tensors));
  args.Add("dtype", Name(bucket.dtype)).Add("outcome", outcome);
  Pen(kCollectivesRow, text).Draw(UpperName(bucket.op), bucket.started, end, args);
}

void TraceBuilder::AddOfDevice(const TimelineEvent& event) {
  const bool is_bucket = event.kind == TimelineKind::kDeviceBucket;
  if (is_bucket && !has_device_row_) finished_.NameRow(kDeviceRow, absl::StrCat("cuda:", event.number));
  has_device_row_ |= is_bucket;
  const int64_t end = event.time + event.duration;
  if (!is_bucket) return finished_.Span(kDeviceRow, event.name_text(), event.time, end);
  const TraceArgs args = TraceArgs().Add("bucket", event.name_text()).Add("bytes", event.bytes);
  finished_.Span(kDeviceRow, UpperName(event.op), event.time, end, args);
}

std::string TraceBuilder::Unfinished() const {
  TraceText text(process_, TraceText::Start::kContinues);
  if (bucket_.has_value()) DrawBucket(*bucket_, std::nullopt, "under way", &text);
  for (const auto& [key, tensor] : tensors_) {
    if (tensor.phase != Phase::kIdle) Draw(tensor, std::nullopt, TraceArgs().Add("outcome", "under way"), &text);
  }
  return text.Take();
}

namespace {

constexpr absl::string_view kOpening = "[\n";
constexpr absl::string_view kClosing = "\n]\n";

}  // namespace

absl::StatusOr<std::unique_ptr<TraceFile>> TraceFile::Create(const std::string& path, size_t most_bytes) {
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd < 0) return absl::ErrnoToStatus(errno, absl::StrCat("cannot create ", path));
  std::unique_ptr<TraceFile> file(new TraceFile(path, fd, most_bytes));
  RONDA_RETURN_IF_ERROR(file->Write(kOpening, ""));
  return file;
}

TraceFile::~TraceFile() { close(fd_); }

absl::Status TraceFile::Write(absl::string_view elements, absl::string_view end) {
  text_.clear();
  absl::StrAppend(&text_, elements, end, kClosing);
  if (size_ + text_.size() < reach_) text_.append(reach_ - size_ - text_.size(), ' ');
  size_t written = 0;
  while (written < text_.size()) {
    const ssize_t count =
        pwrite(fd_, text_.data() + written, text_.size() - written, static_cast<off_t>(size_ + written));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return absl::ErrnoToStatus(errno, absl::StrCat("cannot write ", path_));
    written += static_cast<size_t>(count);
  }
  reach_ = size_ + text_.size();
  size_ += elements.size();
  return absl::OkStatus();
}

std::string PathOfRank(absl::string_view path, RankId rank) {
  const size_t name = path.rfind('/') == absl::string_view::npos ? 0 : path.rfind('/') + 1;
  const size_t point = path.rfind('.');
  const size_t end = point == absl::string_view::npos || point <= name ? path.size() : point;
  return absl::StrCat(path.substr(0, end), ".rank", rank, path.substr(end));
}

}  // namespace ronda
