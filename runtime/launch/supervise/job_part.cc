#include "runtime/launch/supervise/job_part.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <utility>

#include "runtime/base/status_macros.h"

namespace ronda {
namespace {

constexpr Stream kStreams[] = {Stream::kStdout, Stream::kStderr};

// Read at once from a process, so that none can keep the others waiting.
constexpr size_t kReadSize = size_t{64} << 10;

}  // namespace

absl::Status JobPart::Start(const ChildProcess::Context& context, JobListener* listener) {
  listener_ = listener;
  RONDA_ASSIGN_OR_RETURN(process_, ChildProcess::Start(options_, context));
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
  // Not to the end of the pipe: a process that has left the group may hold it open for ever.
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

void JobPart::Collect(const Guard& guard) {
  const ChildProcess::End end = process_->Collect(guard);
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

RankPart::RankPart(RankId rank, std::string host, ChildProcess::Options options)
    : JobPart(std::move(options)), rank_(rank), host_(std::move(host)) {}

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
                        .cause = cause()});
}

void RankPart::Pass(int signo) { process().SignalGroup(signo); }

}  // namespace ronda
