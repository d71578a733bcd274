#include "runtime/tuning/tuning_log.h"

#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "runtime/base/status_macros.h"

namespace ronda {
namespace {

constexpr char kHeader[] =
    "rounds,stage,fusion_threshold_bytes,min_bucket_bytes,chunk_bytes,cycle_time_us,lower_quartile_us,median_us,"
    "upper_quartile_us,decision\n";

std::string Columns(const TunedSettings& settings) {
  return absl::StrCat(settings.fusion_threshold, ",", settings.min_bucket_bytes, ",", settings.chunk_bytes, ",",
                      absl::ToDoubleMicroseconds(settings.cycle_time));
}

}  // namespace

absl::StatusOr<std::unique_ptr<TuningLog>> TuningLog::Create(const std::string& path) {
  std::FILE* file = std::fopen(path.c_str(), "wbe");
  if (file == nullptr) return absl::ErrnoToStatus(errno, absl::StrCat("cannot create ", path));
  std::unique_ptr<TuningLog> log(new TuningLog(path, file));
  RONDA_RETURN_IF_ERROR(log->Write(kHeader));
  return log;
}

absl::Status TuningLog::AddSample(int rounds, const Autotuner::Measurement& measurement,
                                  const TunedSettings& settings) {
  const Sample& sample = measurement.sample;
  return Write(absl::StrFormat("%d,%s,%s,%.1f,%.1f,%.1f,%s\n", rounds, Name(measurement.stage), Columns(settings),
                               sample.lower_quartile(), sample.median(), sample.upper_quartile(),
                               Name(measurement.decision)));
}

absl::Status TuningLog::AddChoice(int rounds, const TunedSettings& settings) {
  return Write(absl::StrFormat("%d,choice,%s,,,,chosen\n", rounds, Columns(settings)));
}

absl::Status TuningLog::Write(const std::string& row) {
  if (std::fwrite(row.data(), 1, row.size(), file_.get()) == row.size() && std::fflush(file_.get()) == 0) {
    return absl::OkStatus();
  }
  return absl::UnavailableError(absl::StrCat("cannot write the autotuner's log ", path_));
}

}  // namespace ronda
