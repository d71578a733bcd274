#ifndef RONDA_RUNTIME_NEGOTIATION_RECORDING_FILE_H_
#define RONDA_RUNTIME_NEGOTIATION_RECORDING_FILE_H_

#include <cstdio>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/negotiation/recording.h"

namespace ronda {

// Writes a recording as it happens. Every event is in the file when Append returns, so that it survives the process.
//
// Thread-compatible. Owns the open file.
class RecordingFile {
 public:
  // Replaces what is at `path`.
  // Errors: that of the operating system, with the path.
  static absl::StatusOr<std::unique_ptr<RecordingFile>> Create(const std::string& path,
                                                               const Negotiator::Options& options);

  // Errors: UNAVAILABLE with the path, if the file cannot be written.
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

// Errors: NOT_FOUND if it cannot be opened; those of DecodeRecording.
absl::StatusOr<Recording> ReadRecording(const std::string& path);

}  // namespace ronda

#endif  // RONDA_RUNTIME_NEGOTIATION_RECORDING_FILE_H_
