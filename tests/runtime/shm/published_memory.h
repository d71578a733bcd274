// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_TESTS_RUNTIME_SHM_PUBLISHED_MEMORY_H_
#define RONDA_TESTS_RUNTIME_SHM_PUBLISHED_MEMORY_H_

#include <cstdint>
#include <filesystem>
#include <string>

#include "absl/status/statusor.h"
#include "runtime/shm/layout.h"
#include "runtime/shm/shm_file.h"
#include "runtime/shm/shm_link.h"

namespace ronda::testing {

// Returns whether there is a link at `path`, wherever it leads.
inline bool IsLink(const std::string& path) {
  std::error_code error;
  return std::filesystem::is_symlink(std::filesystem::symlink_status(path, error));
}

// Returns how many ranks have attached to the memory that the link at `path` leads to; 0 if there is no such memory.
inline uint32_t AttachedRanks(const std::string& path) {
  const absl::StatusOr<ShmLink> link = ReadShmLink(path);
  const auto file = link.ok() ? ShmFile::Open(link->Target()) : link.status();
  if (!file.ok()) return 0;
  const auto page = file->Map(kShmPageBytes);
  return page.ok() ? static_cast<const ShmHeader*>((*page)->base())->attached.load() : 0;
}

}  // namespace ronda::testing

#endif  // RONDA_TESTS_RUNTIME_SHM_PUBLISHED_MEMORY_H_
