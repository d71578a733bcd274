// SPDX-License-Identifier: Apache-2.0

#include "bench/harness/output.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"

namespace ronda::bench {
namespace {

constexpr char kTextMark[] = "T ";
constexpr char kProgressMark[] = "P ";
constexpr char kRowMark[] = "R ";
constexpr char kPeerMark[] = "V ";
constexpr char kDistancesMark[] = "D ";

using Kind = OutputMessage::Kind;

// Splits a text at its first blank: into two numbers, or a number and a label.
std::pair<std::string, std::string> HalvesOf(const std::string& text) {
  return absl::StrSplit(text, absl::MaxSplits(' ', 1));
}

}  // namespace

std::string EncodeLine(const OutputMessage& message) {
  if (message.kind == Kind::kProgress) return absl::StrCat(kProgressMark, message.fraction, " ", message.text, "\n");
  if (message.kind == Kind::kRow) return absl::StrCat(kRowMark, message.text, "\n");
  if (message.kind == Kind::kPeer) return absl::StrCat(kPeerMark, message.text, "\n");
  if (message.kind == Kind::kDistances) {
    return absl::StrCat(kDistancesMark, message.distances[0], " ", message.distances[1], "\n");
  }
  std::string lines;
  for (const absl::string_view line : absl::StrSplit(absl::StripSuffix(message.text, "\n"), '\n')) {
    absl::StrAppend(&lines, kTextMark, line, "\n");
  }
  return lines;
}

OutputMessage DecodeLine(const std::string& line) {
  if (absl::StartsWith(line, kTextMark)) return {.text = line.substr(2) + "\n"};
  if (absl::StartsWith(line, kRowMark)) return {.kind = Kind::kRow, .text = line.substr(2)};
  if (absl::StartsWith(line, kPeerMark)) return {.kind = Kind::kPeer, .text = line.substr(2)};
  if (absl::StartsWith(line, kProgressMark)) {
    const auto [number, label] = HalvesOf(line.substr(2));
    double fraction = 0;
    if (absl::SimpleAtod(number, &fraction)) return {.kind = Kind::kProgress, .text = label, .fraction = fraction};
  }
  if (absl::StartsWith(line, kDistancesMark)) {
    const auto [before, after] = HalvesOf(line.substr(2));
    OutputMessage message = {.kind = Kind::kDistances};
    if (absl::SimpleAtod(before, &message.distances[0]) && absl::SimpleAtod(after, &message.distances[1])) {
      return message;
    }
  }
  return {.text = line + "\n"};
}

Output::Output(int rank, const std::string& pipe) : rank_(rank) {
  if (rank == 0 && !pipe.empty()) pipe_ = UniqueFd(open(pipe.c_str(), O_WRONLY | O_CLOEXEC));
}

void Output::Print(const std::string& text) {
  if (rank_ != 0) return;
  if (pipe_.valid()) {
    Send(EncodeLine({.text = text}));
    return;
  }
  std::fputs(text.c_str(), stdout);
  std::fflush(stdout);
}

void Output::Progress(double fraction, const std::string& label) {
  if (rank_ != 0 || !pipe_.valid()) return;
  Send(EncodeLine({.kind = Kind::kProgress, .text = label, .fraction = fraction}));
}

void Output::Row(const std::string& row) { Send(EncodeLine({.kind = Kind::kRow, .text = row})); }

void Output::Peer(const std::string& description) { Send(EncodeLine({.kind = Kind::kPeer, .text = description})); }

void Output::Distances(double before, double after) {
  Send(EncodeLine({.kind = Kind::kDistances, .distances = {before, after}}));
}

void Output::Send(const std::string& line) {
  size_t sent = 0;
  while (sent < line.size()) {
    const ssize_t written = write(pipe_.get(), line.data() + sent, line.size() - sent);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return;  // the reader has ended
    sent += static_cast<size_t>(written);
  }
}

std::string ProgressLine(double fraction, const std::string& label) {
  constexpr size_t kCells = 30;
  const double bounded = std::clamp(fraction, 0.0, 1.0);
  const auto filled = static_cast<size_t>(bounded * kCells);
  return absl::StrFormat("[%s%s] %3d %%  %s", std::string(filled, '#'), std::string(kCells - filled, ' '),
                         static_cast<int>(100 * bounded), label);
}

ProgressBar::ProgressBar(std::FILE* stream) : stream_(stream), is_terminal_(isatty(fileno(stream)) == 1) {}

void ProgressBar::Show(double fraction, const std::string& label) {
  if (!is_terminal_) return;
  std::fprintf(stream_, "\r\033[K%s", ProgressLine(fraction, label).c_str());
  std::fflush(stream_);
  is_shown_ = true;
}

void ProgressBar::Clear() {
  if (!is_shown_) return;
  std::fputs("\r\033[K", stream_);
  std::fflush(stream_);
  is_shown_ = false;
}

}  // namespace ronda::bench
