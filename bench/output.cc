#include "bench/output.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace ronda::bench {
namespace {

constexpr char kTextMark[] = "T ";
constexpr char kProgressMark[] = "P ";

}  // namespace

std::string EncodeLine(const OutputMessage& message) {
  if (message.kind == OutputMessage::Kind::kProgress) {
    return absl::StrCat(kProgressMark, message.fraction, " ", message.text, "\n");
  }
  std::string lines;
  for (const absl::string_view line : absl::StrSplit(absl::StripSuffix(message.text, "\n"), '\n')) {
    absl::StrAppend(&lines, kTextMark, line, "\n");
  }
  return lines;
}

OutputMessage DecodeLine(const std::string& line) {
  if (absl::StartsWith(line, kTextMark)) return {.text = line.substr(2) + "\n"};
  if (absl::StartsWith(line, kProgressMark)) {
    const std::pair<std::string, std::string> parts = absl::StrSplit(line.substr(2), absl::MaxSplits(' ', 1));
    double fraction = 0;
    if (absl::SimpleAtod(parts.first, &fraction)) {
      return {.kind = OutputMessage::Kind::kProgress, .text = parts.second, .fraction = fraction};
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
  Send(EncodeLine({.kind = OutputMessage::Kind::kProgress, .text = label, .fraction = fraction}));
}

void Output::Send(const std::string& line) {
  size_t sent = 0;
  while (sent < line.size()) {
    const ssize_t written = write(pipe_.get(), line.data() + sent, line.size() - sent);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return;  // nobody reads any more
    sent += static_cast<size_t>(written);
  }
}

}  // namespace ronda::bench
