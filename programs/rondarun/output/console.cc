// SPDX-License-Identifier: Apache-2.0

#include "programs/rondarun/output/console.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/time/time.h"

namespace ronda {
namespace {

constexpr absl::string_view kEraseLine = "\r\x1b[K";

// A line that is redrawn must not wrap, because only one row of the terminal can be erased.
constexpr absl::string_view kWrapOff = "\x1b[?7l";
constexpr absl::string_view kWrapOn = "\x1b[?7h";

// A program erases a line on its terminal before redrawing the line. On the launcher's terminal, that escape sequence
// would also erase the mark in front of the line.
absl::string_view StripErasing(absl::string_view text) {
  while (absl::ConsumePrefix(&text, "\x1b[K") || absl::ConsumePrefix(&text, "\x1b[0K") ||
         absl::ConsumePrefix(&text, "\x1b[2K")) {
  }
  return text;
}

// Returns whether `line` is an information or debug message from Ronda's log (runtime/base/logging.h).
bool IsInformation(RankId rank, absl::string_view line) {
  const std::string own = absl::StrCat("ronda[", rank, "] ");
  return absl::StartsWith(line, absl::StrCat(own, "I ")) || absl::StartsWith(line, absl::StrCat(own, "D "));
}

}  // namespace

void LineSplitter::Feed(absl::string_view bytes, Emit emit) {
  while (!bytes.empty()) {
    const size_t end = bytes.find_first_of("\r\n");
    Append(bytes.substr(0, end), emit);
    if (end == absl::string_view::npos) return;
    if (bytes[end] == '\r') {
      Redraw();
    } else {
      EndLine(emit);
    }
    bytes.remove_prefix(end + 1);
  }
}

void LineSplitter::Finish(Emit emit) {
  if (!visible().empty()) emit(visible());
  *this = LineSplitter();
}

std::optional<absl::string_view> LineSplitter::progress() const {
  if (!redrawn_ || visible().empty()) return std::nullopt;
  return visible();
}

std::string LineSplitter::TakeUnfinished() { return redrawn_ ? "" : std::exchange(text_, {}); }

void LineSplitter::Append(absl::string_view text, Emit emit) {
  while (!text.empty()) {
    if (text_.size() == kMaxLine) {
      emit(text_);
      text_.clear();
    }
    const size_t fits = std::min(text.size(), kMaxLine - text_.size());
    text_.append(text.data(), fits);
    text.remove_prefix(fits);
  }
}

void LineSplitter::Redraw() {
  redrawn_ = true;
  if (text_.empty()) return;
  // Some programs erase a progress bar by overwriting it with blanks.
  if (text_.find_first_not_of(' ') == std::string::npos) text_.clear();
  previous_ = std::move(text_);
  text_.clear();
}

void LineSplitter::EndLine(Emit emit) {
  emit(visible());
  text_.clear();
  previous_.clear();
  redrawn_ = false;
}

Console::Console(const Options& options, OutputQueue* out, OutputQueue* err, const Clock* calendar)
    : options_(options),
      out_(out),
      err_(err),
      calendar_(calendar),
      splitters_(static_cast<size_t>(options.rank_count)),
      last_errors_(static_cast<size_t>(options.rank_count)) {}

void Console::AddRank(RankId rank) {
  const size_t count = std::max(splitters_.size(), static_cast<size_t>(rank) + 1);
  splitters_.resize(count);
  last_errors_.resize(count);
}

void Console::Feed(RankId rank, Stream stream, absl::string_view bytes) {
  splitter(rank, stream).Feed(bytes, [&](absl::string_view line) { PrintLine(rank, stream, line); });
  UpdateProgress(rank, stream);
  DrawProgress();
}

void Console::Finish(RankId rank, Stream stream) {
  splitter(rank, stream).Finish([&](absl::string_view line) { PrintLine(rank, stream, line); });
  UpdateProgress(rank, stream);
  DrawProgress();
}

void Console::ShowPrompt(RankId rank) {
  for (const Stream stream : {Stream::kStdout, Stream::kStderr}) {
    if (options_.media[static_cast<size_t>(stream)] != Medium::kTerminal || IsHidden(stream)) continue;
    const std::string text = splitter(rank, stream).TakeUnfinished();
    if (text.empty()) continue;
    EraseProgress();
    LeavePrompt(rank, queue(stream));
    queue(stream)->Append(absl::StrCat(Prefix(rank, stream), StripErasing(text)));
    asking_ = rank;
  }
}

void Console::LeavePrompt(std::optional<RankId> rank, OutputQueue* queue) {
  if (asking_.has_value() && asking_ != rank) queue->Append("\n");
  asking_.reset();
}

void Console::Say(absl::string_view text) {
  EraseProgress();
  LeavePrompt(std::nullopt, err_);
  err_->Append(absl::StrCat("rondarun: ", text, "\n"));
  DrawProgress();
}

LineSplitter& Console::splitter(RankId rank, Stream stream) {
  return splitters_[static_cast<size_t>(rank)][static_cast<size_t>(stream)];
}

bool Console::IsHidden(Stream stream) const {
  return std::find(options_.hidden.begin(), options_.hidden.end(), stream) != options_.hidden.end();
}

std::string Console::Prefix(RankId rank, Stream stream) const {
  std::string mark = absl::StrCat("[", rank, "]<", Name(stream), ">: ");
  if (options_.line_prefix == LaunchOptions::LinePrefix::kRank) return mark;
  return absl::StrCat(absl::FormatTime("%Y-%m-%dT%H:%M:%E3S%Ez ", calendar_->Now(), absl::LocalTimeZone()), mark);
}

void Console::PrintLine(RankId rank, Stream stream, absl::string_view line) {
  if (stream == Stream::kStderr && !IsInformation(rank, line)) last_errors_[static_cast<size_t>(rank)].Add(line);
  if (IsHidden(stream)) return;
  EraseProgress();
  if (progress_.has_value() && progress_->IsOf(rank, stream)) progress_.reset();
  LeavePrompt(rank, queue(stream));
  queue(stream)->Append(absl::StrCat(Prefix(rank, stream), StripErasing(line), "\n"));
}

void Console::UpdateProgress(RankId rank, Stream stream) {
  if (options_.media[static_cast<size_t>(stream)] != Medium::kTerminal || IsHidden(stream)) return;
  if (progress_.has_value() && !progress_->IsOf(rank, stream)) return;
  const auto text = splitter(rank, stream).progress();
  if (!text.has_value()) {
    EraseProgress();
    progress_.reset();
    return;
  }
  if (progress_.has_value() && progress_->text == *text) return;
  EraseProgress();
  progress_ = Progress{.rank = rank, .stream = stream, .text = std::string(*text), .drawn = false};
}

void Console::DrawProgress() {
  if (!progress_.has_value() || progress_->drawn) return;
  queue(progress_->stream)
      ->Append(
          absl::StrCat(kWrapOff, Prefix(progress_->rank, progress_->stream), StripErasing(progress_->text), kWrapOn));
  progress_->drawn = true;
}

void Console::EraseProgress() {
  if (!progress_.has_value() || !progress_->drawn) return;
  queue(progress_->stream)->Append(kEraseLine);
  progress_->drawn = false;
}

}  // namespace ronda
