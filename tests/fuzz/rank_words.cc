// SPDX-License-Identifier: Apache-2.0

// Tests how a monitor reads the state of a rank (RankWords) from a file that another process writes. The monitor must
// refuse the file, or read only within the file's bounds.
#include "runtime/monitor/rank_words.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <memory>

#include "programs/monitor/jobs/rank_reader.h"
#include "tests/fuzz/fuzz_input.h"

namespace ronda {
namespace {

// Fills in valid RankWords, which the input then damages.
void FillIn(RankWords* words) {
  words->bytes = sizeof(RankWords);
  words->pid = getpid();
  words->start_time = ReadProcessStat(getpid())->start_time;
  std::strcpy(words->job, "job");
  std::strcpy(words->host, "host");
  words->magic = RankWords::kMagic;
}

struct Descriptor {
  int fd = -1;
  ~Descriptor() { close(fd); }
};

// Reads the RankWords from a file, as another process would.
void ReadFromFile(const RankWords& words) {
  const Descriptor file{memfd_create(kRankFileName, MFD_CLOEXEC)};
  const auto* const bytes = reinterpret_cast<const char*>(&words);
  fuzz::Require(write(file.fd, bytes, sizeof(words)) == static_cast<ssize_t>(sizeof(words)), "memory has room");
  const auto rank = RankReader::Open(getpid(), file.fd);
  if (!rank.ok()) return;
  const RankSample sample = (*rank)->Read();
  fuzz::Require(sample.entries.size() <= RankWords::kEntries, "entries are within their bounds");
  fuzz::Require(std::is_sorted(sample.entries.begin(), sample.entries.end(),
                               [](const BucketEntry& a, const BucketEntry& b) { return a.bucket < b.bucket; }),
                "entries are in order");
  const RankIdentity& identity = (*rank)->identity();
  fuzz::Require(identity.job.size() <= RankWords::kJobBytes, "the job's name is within its bounds");
  fuzz::Require(identity.topology.rank >= 0 && identity.topology.rank < identity.topology.size,
                "the rank is in its job");
}

}  // namespace
}  // namespace ronda

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using ronda::RankWords;
  ronda::fuzz::FuzzInput input(data, size);
  const auto words = std::make_unique<RankWords>();
  ronda::FillIn(words.get());
  char* const memory = reinterpret_cast<char*>(words.get());
  while (!input.empty()) {
    const size_t at = input.Number<uint16_t>() % sizeof(RankWords);
    const absl::string_view bytes = input.Text();
    std::memcpy(memory + at, bytes.data(), std::min(bytes.size(), sizeof(RankWords) - at));
  }
  const absl::Status status = ronda::CheckRankWords(*words, sizeof(RankWords));
  ronda::fuzz::Require(status.ok() || !status.message().empty(), "a refusal says why");
  ronda::ReadFromFile(*words);
  return 0;
}
