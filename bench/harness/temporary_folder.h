// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_BENCH_HARNESS_TEMPORARY_FOLDER_H_
#define RONDA_BENCH_HARNESS_TEMPORARY_FOLDER_H_

#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"

namespace ronda::bench {

// A new folder under TMPDIR, or under /tmp if TMPDIR is unset. The destructor removes the folder and its files.
class TemporaryFolder {
 public:
  // Errors: UNAVAILABLE, with a text that names TMPDIR, or says why the folder cannot be created.
  static absl::StatusOr<std::unique_ptr<TemporaryFolder>> Create();

  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::string& path() const { return path_; }
  std::string PathOf(const std::string& file) const { return path_ + "/" + file; }

  // Keeps the folder for the user: the destructor does not remove it.
  void Keep() { is_kept_ = true; }

 private:
  explicit TemporaryFolder(std::string path) : path_(std::move(path)) {}

  const std::string path_;
  bool is_kept_ = false;
};

}  // namespace ronda::bench

#endif  // RONDA_BENCH_HARNESS_TEMPORARY_FOLDER_H_
