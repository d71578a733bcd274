#ifndef RONDA_RUNTIME_LAUNCH_OUTPUT_FILES_H_
#define RONDA_RUNTIME_LAUNCH_OUTPUT_FILES_H_

#include <array>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "runtime/base/types.h"
#include "runtime/base/unique_fd.h"
#include "runtime/launch/stream.h"

namespace ronda {

// The copies of the ranks' output that --output-filename asks for: DIR/rank.N/stdout and DIR/rank.N/stderr, byte for
// byte what the rank printed. Files of an earlier job are replaced.
//
// Thread-compatible.
class OutputFiles {
 public:
  // Creates the directories and files.
  // Errors: the system's, naming the path.
  static absl::StatusOr<OutputFiles> Create(const std::string& directory, const std::vector<RankId>& ranks);

  // No files: Write does nothing.
  OutputFiles() = default;

  // Errors: the system's, naming the path; nothing more is written to that file then, and no error reported.
  absl::Status Write(RankId rank, Stream stream, absl::string_view bytes);

 private:
  std::string directory_;
  std::map<RankId, std::array<UniqueFd, kStreamCount>> files_;
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_LAUNCH_OUTPUT_FILES_H_
