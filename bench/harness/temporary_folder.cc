// SPDX-License-Identifier: Apache-2.0

#include "bench/harness/temporary_folder.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace ronda::bench {

absl::StatusOr<std::unique_ptr<TemporaryFolder>> TemporaryFolder::Create() {
  std::error_code error;
  const std::filesystem::path parent = std::filesystem::temp_directory_path(error);
  if (error) return absl::UnavailableError("TMPDIR is no folder: set it to a folder for temporary files, or unset it");
  std::string path = parent / "ronda-bench-XXXXXX";
  if (mkdtemp(path.data()) == nullptr) {
    return absl::UnavailableError(
        absl::StrCat("cannot create a folder in ", parent.string(), ": ", std::strerror(errno)));
  }
  return std::unique_ptr<TemporaryFolder>(new TemporaryFolder(std::move(path)));
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  if (!is_kept_) std::filesystem::remove_all(path_, ignored);
}

}  // namespace ronda::bench
