// SPDX-License-Identifier: Apache-2.0

#include "runtime/monitor/summary_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <new>
#include <system_error>
#include <thread>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/files.h"

namespace ronda {
namespace {

constexpr char kOwnDescriptors[] = "/proc/self/fd";

size_t SizeOf(int fd) {
  struct stat info;
  return fstat(fd, &info) == 0 ? static_cast<size_t>(info.st_size) : 0;
}

// Returns the descriptor of this process's inherited SummaryFile, or -1 if there is none.
int FindOwn() {
  for (const int fd : NumbersIn(kOwnDescriptors)) {
    if (IsMemoryFile(absl::StrCat(kOwnDescriptors, "/", fd), SummaryFile::kName)) return fd;
  }
  return -1;
}

}  // namespace

bool IsMemoryFile(const std::string& path, absl::string_view name) {
  char target[64];
  const ssize_t bytes = readlink(path.c_str(), target, sizeof(target));
  return bytes > 0 &&
         absl::string_view(target, static_cast<size_t>(bytes)) == absl::StrCat("/memfd:", name, " (deleted)");
}

std::vector<int> NumbersIn(const std::string& folder) {
  std::vector<int> numbers;
  std::error_code error;
  for (std::filesystem::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    int number = 0;
    if (absl::SimpleAtoi(it->path().filename().string(), &number)) numbers.push_back(number);
  }
  return numbers;
}

SummaryFile::SummaryFile() : fd_(memfd_create(kName, MFD_CLOEXEC)) {
  // O_APPEND is necessary because the ranks share the file offset, and may append at the same time.
  if (fd_.valid() && fcntl(fd_.get(), F_SETFL, O_APPEND) != 0) fd_.Reset();
}

std::vector<std::string> SummaryFile::Read() const {
  if (!fd_.valid()) return {};
  std::string all(SizeOf(fd_.get()), '\0');
  const ssize_t count = pread(fd_.get(), all.data(), all.size(), 0);
  std::vector<std::string> words;
  const size_t whole = count < 0 ? 0 : static_cast<size_t>(count) / sizeof(RankWords);
  for (size_t i = 0; i < whole; ++i) words.push_back(all.substr(i * sizeof(RankWords), sizeof(RankWords)));
  return words;
}

// If memory runs out, does nothing, and the summary lacks this rank.
void LeaveForSummary(const RankWords& words) {
  try {
    const int fd = FindOwn();
    // Other ranks may append between this check and the write, so the check leaves room for one more rank per core.
    const size_t end = fd < 0 ? 0 : SizeOf(fd) + (1 + std::thread::hardware_concurrency()) * sizeof(words);
    const bool has_room = fd >= 0 && end < SummaryFile::kMaxBytes && IsWithinFileLimit(end);
    [[maybe_unused]] const ssize_t count = has_room ? write(fd, &words, sizeof(words)) : 0;
  } catch (const std::bad_alloc&) {
    return;
  }
}

}  // namespace ronda
