// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_BENCH_HARNESS_TEMPORARY_FOLDER_H_
#define RONDA_BENCH_HARNESS_TEMPORARY_FOLDER_H_

#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"

namespace ronda::bench {

// A new folder in TMPDIR, or in /tmp if TMPDIR is unset. The destructor removes it with its files.
class TemporaryFolder {
 public:
  // Errors: UNAVAILABLE that names TMPDIR, or says why the system refuses a folder.
  static absl::StatusOr<std::unique_ptr<TemporaryFolder>> Create();

  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::string& path() const { return path_; }
  std::string PathOf(const std::string& file) const { return path_ + "/" + file; }

  // Leaves the folder to the user, so the destructor does not remove it.
  void Keep() { is_kept_ = true; }

 private:
  explicit TemporaryFolder(std::string path) : path_(std::move(path)) {}

  const std::string path_;
  bool is_kept_ = false;
};

}  // namespace ronda::bench

#endif  // RONDA_BENCH_HARNESS_TEMPORARY_FOLDER_H_
