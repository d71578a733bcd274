#include "runtime/negotiation/recording_file.h"

#include <cerrno>
#include <fstream>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/status_macros.h"

namespace ronda {

absl::StatusOr<std::unique_ptr<RecordingFile>> RecordingFile::Create(const std::string& path,
                                                                     const Negotiator::Options& options) {
  std::FILE* file = std::fopen(path.c_str(), "wbe");
  if (file == nullptr) return absl::ErrnoToStatus(errno, absl::StrCat("cannot create ", path));
  std::unique_ptr<RecordingFile> recording(new RecordingFile(path, file));
  RONDA_RETURN_IF_ERROR(recording->Write(EncodeHeader(options)));
  return recording;
}

absl::Status RecordingFile::Write(const std::string& bytes) {
  if (std::fwrite(bytes.data(), 1, bytes.size(), file_.get()) == bytes.size() && std::fflush(file_.get()) == 0) {
    return absl::OkStatus();
  }
  return absl::UnavailableError(absl::StrCat("cannot write the negotiation's recording ", path_));
}

absl::StatusOr<Recording> ReadRecording(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return absl::NotFoundError(absl::StrCat("cannot open ", path));
  const std::string bytes{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  return DecodeRecording(bytes);
}

}  // namespace ronda
