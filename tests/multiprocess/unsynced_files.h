// SPDX-License-Identifier: Apache-2.0

// Records the file changes that a process has made but not yet synced to disk.
#ifndef RONDA_TESTS_MULTIPROCESS_UNSYNCED_FILES_H_
#define RONDA_TESTS_MULTIPROCESS_UNSYNCED_FILES_H_

#include <string>
#include <utility>
#include <vector>

namespace ronda {

// Returns the path of the file that `fd` refers to, or "" if there is none. Does not change errno.
std::string PathOf(int fd);

// Simulates the worst that a file system can do in a power failure. Unsynced files lose their content. Unsynced folders
// lose the names of new and renamed entries. Removing a file takes effect at once, even without a sync.
//
// Thread-compatible. The owner must report each change, with absolute paths.
class UnsyncedFiles {
 public:
  // A file that loses its name is moved to the path `lost`, which must be on the same file system.
  explicit UnsyncedFiles(std::string lost) : lost_(std::move(lost)) {}

  void Opened(int fd);  // for writing
  void Made(const std::string& folder) { names_.push_back({folder, lost_}); }
  void Renamed(const std::string& from, const std::string& to) { names_.push_back({to, from}); }  // `to` is a new name
  void Synced(int fd);

  void LosePower();

 private:
  struct Name {
    std::string path;
    std::string before;  // the earlier path of the same file or folder
  };

  const std::string lost_;
  std::vector<int> files_;   // descriptors that this object owns
  std::vector<Name> names_;  // the oldest first
};

}  // namespace ronda

#endif  // RONDA_TESTS_MULTIPROCESS_UNSYNCED_FILES_H_
