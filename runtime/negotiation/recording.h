// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_RUNTIME_NEGOTIATION_RECORDING_H_
#define RONDA_RUNTIME_NEGOTIATION_RECORDING_H_

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "runtime/negotiation/messages.h"
#include "runtime/negotiation/negotiator.h"

namespace ronda {

// One call of the coordinator's negotiator, or one of the negotiator's answers.
struct NegotiationEvent {
  enum class Kind : uint8_t {
    kReport = 1,   // of `rank`, encoded, in `bytes`
    kFailure = 2,  // a call of Negotiator::Fail, as an encoded list of one error
    kList = 3,     // the encoded response list that was sent
    kUnlock = 4,   // a call of Negotiator::Unlock: the rounds and buckets
    kSizes = 5,    // a call of Negotiator::SetBucketSizes: both sizes
  };
  Kind kind = Kind::kReport;
  absl::Time time;
  RankId rank = 0;
  std::string bytes;

  static NegotiationEvent Report(RankId rank, std::string bytes, absl::Time now) {
    return {Kind::kReport, now, rank, std::move(bytes)};
  }
  static NegotiationEvent Failure(TensorKeyView tensor, const absl::Status& status, absl::Time now);
  static NegotiationEvent List(std::string bytes, absl::Time now) { return {Kind::kList, now, 0, std::move(bytes)}; }
  static NegotiationEvent Unlock(const ScheduleProgress& progress, absl::Time now);
  static NegotiationEvent Sizes(const Negotiator::BucketSizes& sizes, absl::Time now);
};

// The calls and answers of a coordinator's negotiator, from the beginning of its job.
//
// A file contains "RONDANEG", the version, the options, and then the events, each preceded by its length. Numbers are
// little-endian. The end of a file may be missing: the process may have been killed while writing.
struct Recording {
  Negotiator::Options options;
  std::vector<NegotiationEvent> events;
};

std::string EncodeHeader(const Negotiator::Options& options);
std::string Encode(const NegotiationEvent& event);

// Errors: INVALID_ARGUMENT if `bytes` is not a recording, or has another version.
absl::StatusOr<Recording> DecodeRecording(absl::string_view bytes);

// Runs all events except the lists through a new negotiator, and compares the lists.
// Errors: INTERNAL, with the number of the first list that differs and both versions of it; INVALID_ARGUMENT if an
// event cannot be decoded, or if the negotiator refuses a report.
absl::Status Replay(const Recording& recording);

// Writes a recording while the negotiation runs. When Append returns, the event is in the file, even if the process is
// killed afterwards.
//
// Thread-compatible. RecordingFile owns the open file.
class RecordingFile {
 public:
  // Creates a file at `path`, and replaces an existing file.
  // Errors: the operating system's error, with the path.
  static absl::StatusOr<std::unique_ptr<RecordingFile>> Create(const std::string& path,
                                                               const Negotiator::Options& options);

  // Appends an event to the file. Errors: UNAVAILABLE, with the path, if the file cannot be written.
  absl::Status Append(const NegotiationEvent& event) { return Write(Encode(event)); }

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };

  RecordingFile(std::string path, std::FILE* file) : path_(std::move(path)), file_(file) {}
  absl::Status Write(const std::string& bytes);

  const std::string path_;
  const std::unique_ptr<std::FILE, Close> file_;
};

// Reads a recording from a file. Errors: NOT_FOUND if the file cannot be opened; the errors of DecodeRecording.
absl::StatusOr<Recording> ReadRecording(const std::string& path);

}  // namespace ronda

#endif  // RONDA_RUNTIME_NEGOTIATION_RECORDING_H_
