// SPDX-License-Identifier: Apache-2.0

#include "programs/rondarun/supervise/job_part.h"

#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "runtime/base/status_macros.h"

namespace ronda {
namespace {

constexpr Stream kStreams[] = {Stream::kStdout, Stream::kStderr};

// One read takes at most this many bytes, so that no process delays the others.
constexpr size_t kReadSize = size_t{64} << 10;

ChildProcess::Options WithErrorFile(const ErrorFile& file, ChildProcess::Options options) {
  if (file.fd() >= 0) options.inherited_fds.push_back(file.fd());
  return options;
}

}  // namespace

absl::Status JobPart::Start(const ProcessStarter& starter, JobListener* listener) {
  listener_ = listener;
  RONDA_ASSIGN_OR_RETURN(process_, starter.Start(options_));
  if (process_->input() >= 0) input_.emplace(process_->input());
  OnStart();
  return absl::OkStatus();
}

size_t JobPart::Read(Stream stream, size_t at_most) {
  std::array<char, kReadSize> buffer;
  const ssize_t count = read(process_->output(stream), buffer.data(), std::min(at_most, buffer.size()));
  if (count == 0) CloseOutput(stream);
  if (count <= 0) return 0;
  OnBytes(stream, absl::string_view(buffer.data(), static_cast<size_t>(count)));
  return static_cast<size_t>(count);
}

void JobPart::Drain(Stream stream) {
  const int fd = process_->output(stream);
  int available = 0;
  if (fd < 0 || ioctl(fd, FIONREAD, &available) != 0) return;
  // Do not wait for the end of the pipe, because a process that has left the group may keep the pipe open forever.
  size_t left = static_cast<size_t>(available);
  while (left > 0) {
    const size_t count = Read(stream, left);
    if (count == 0) return;
    left -= count;
  }
}

void JobPart::CloseOutput(Stream stream) {
  process_->CloseOutput(stream);
  OnBytesEnd(stream);
}

void JobPart::Collect() {
  const ChildProcess::End end = process_->Collect();
  collected_ = true;
  for (const Stream stream : kStreams) {
    Drain(stream);
    if (process_->output(stream) >= 0) CloseOutput(stream);
  }
  input_.reset();
  process_->CloseInput();
  OnEnd(end);
}

void JobPart::Signal(int signo) {
  cause_ = RankEnd::Cause::kLauncher;
  Pass(signo);
}

ErrorFile::ErrorFile() : fd_(memfd_create(kName, MFD_CLOEXEC)) {}

std::string ErrorFile::Read() const {
  std::string text(kMaxBytes, '\0');
  const ssize_t count = fd_.valid() ? pread(fd_.get(), text.data(), text.size(), 0) : 0;
  text.resize(static_cast<size_t>(std::max<ssize_t>(count, 0)));
  text.resize(std::min(text.size(), text.find('\n')));
  std::erase_if(text, [](char c) { return absl::ascii_iscntrl(static_cast<unsigned char>(c)); });
  return text;
}

RankPart::RankPart(RankId rank, std::string host, ChildProcess::Options options)
    : RankPart(rank, std::move(host), ErrorFile(), std::move(options)) {}

RankPart::RankPart(RankId rank, std::string host, ErrorFile error_file, ChildProcess::Options options)
    : JobPart(WithErrorFile(error_file, std::move(options))),
      rank_(rank),
      host_(std::move(host)),
      error_file_(std::move(error_file)) {}

std::vector<RankId> RankPart::RunningRanks() const {
  return running() ? std::vector<RankId>{rank_} : std::vector<RankId>();
}

void RankPart::OnStart() { listener().OnRankStart(rank_, process().pid(), host_); }

void RankPart::OnBytes(Stream stream, absl::string_view bytes) { listener().OnOutput(rank_, stream, bytes); }

void RankPart::OnBytesEnd(Stream stream) { listener().OnOutputEnd(rank_, stream); }

void RankPart::OnEnd(const ChildProcess::End& end) {
  listener().OnRankEnd({.rank = rank_,
                        .pid = process().pid(),
                        .host = host_,
                        .exit_code = end.exit_code,
                        .signal = end.signal,
                        .cause = cause(),
                        .last_error = error_file_.Read()});
}

void RankPart::Pass(int signo) { process().SignalGroup(signo); }

CompanionPart::CompanionPart(std::string name, ChildProcess::Options options)
    : JobPart(std::move(options)), name_(std::move(name)) {}

void CompanionPart::OnBytes(Stream stream, absl::string_view bytes) {
  lines_[static_cast<size_t>(stream)].Feed(bytes, [this](absl::string_view line) { Say(line); });
}

void CompanionPart::OnBytesEnd(Stream stream) {
  lines_[static_cast<size_t>(stream)].Finish([this](absl::string_view line) { Say(line); });
}

// Prints a line of the companion, prefixed with its name. The program prefixes its own errors with the name. That
// prefix is removed first, so that the name is printed only once.
void CompanionPart::Say(absl::string_view line) {
  absl::ConsumePrefix(&line, absl::StrCat(name_, ": "));
  listener().Say(absl::StrCat(name_, ": ", line));
}

void CompanionPart::OnEnd(const ChildProcess::End&) {
  if (cause() == RankEnd::Cause::kItself) listener().Say(absl::StrCat(name_, " has ended; the job goes on without it"));
}

// The companion must live as long as the ranks, which may take a long time to end. So it gets none of the signals that
// end the job, except SIGKILL.
void CompanionPart::Pass(int signo) {
  if (signo == SIGKILL) process().SignalGroup(signo);
}

}  // namespace ronda
