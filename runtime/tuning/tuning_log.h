#ifndef RONDA_RUNTIME_TUNING_TUNING_LOG_H_
#define RONDA_RUNTIME_TUNING_TUNING_LOG_H_

#include <cstdio>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/tuning/autotuner.h"
#include "runtime/tuning/tuning_space.h"

namespace ronda {

// Writes what the autotuner measures and decides to a file, as comma-separated values: a row a sample, and as the last
// one the choice. Every row is in the file when the call returns. docs/autotune.md explains the columns.
//
// Thread-compatible. Owns the open file.
class TuningLog {
 public:
  // Replaces what is at `path`.
  // Errors: that of the operating system, with the path.
  static absl::StatusOr<std::unique_ptr<TuningLog>> Create(const std::string& path);

  // `rounds`: how many there have been so far.
  // Errors: UNAVAILABLE with the path, if the file cannot be written.
  absl::Status AddSample(int rounds, const Autotuner::Measurement& measurement, const TunedSettings& settings);
  absl::Status AddChoice(int rounds, const TunedSettings& settings);

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };

  TuningLog(std::string path, std::FILE* file) : path_(std::move(path)), file_(file) {}
  absl::Status Write(const std::string& row);

  const std::string path_;
  const std::unique_ptr<std::FILE, Close> file_;
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_TUNING_TUNING_LOG_H_
