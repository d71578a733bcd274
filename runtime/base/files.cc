// SPDX-License-Identifier: Apache-2.0

#include "runtime/base/files.h"

#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <system_error>

#include "absl/strings/str_cat.h"

namespace ronda {

absl::StatusOr<std::string> ReadFile(const std::string& path) {
  const auto error = [&path] { return absl::NotFoundError(absl::StrCat(path, ": ", std::strerror(errno))); };
  const std::unique_ptr<FILE, int (*)(FILE*)> file(std::fopen(path.c_str(), "rbe"), std::fclose);
  if (file == nullptr) return error();
  std::string content;
  char block[4096];
  while (const size_t size = std::fread(block, 1, sizeof(block), file.get())) content.append(block, size);
  if (std::ferror(file.get()) != 0) return error();
  return content;
}

absl::Status WriteFile(const std::string& path, const std::string& text) {
  FILE* const file = std::fopen(path.c_str(), "wbe");
  bool written = file != nullptr && std::fwrite(text.data(), 1, text.size(), file) == text.size();
  if (file != nullptr) written = std::fclose(file) == 0 && written;
  if (written) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat("cannot write ", path, ": ", std::strerror(errno)));
}

bool IsWithinFileLimit(size_t bytes) {
  rlimit limit = {};
  return getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY || bytes <= limit.rlim_cur;
}

std::vector<std::string> ShmFolders() {
  std::vector<std::string> folders = {"/dev/shm"};
  std::error_code error;
  for (const std::string& folder : {std::filesystem::temp_directory_path(error).string(), std::string("/tmp")}) {
    if (!folder.empty() && std::find(folders.begin(), folders.end(), folder) == folders.end())
      folders.push_back(folder);
  }
  return folders;
}

}  // namespace ronda
