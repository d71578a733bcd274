// SPDX-License-Identifier: Apache-2.0

// What a process has done to files, and not forced to the disk.
#ifndef RONDA_TESTS_MULTIPROCESS_UNSYNCED_FILES_H_
#define RONDA_TESTS_MULTIPROCESS_UNSYNCED_FILES_H_

#include <string>
#include <utility>
#include <vector>

namespace ronda {

// Of what the descriptor has opened; "" if that is no file. Leaves errno alone.
std::string PathOf(int fd);

// Plays a file system at its worst when the power fails: the bytes of files that were not synced are gone, and so are
// the new names in folders that were not synced. A removal counts at once.
//
// Thread-compatible. Its owner tells it what has been done, with absolute paths.
class UnsyncedFiles {
 public:
  // Names that are lost are moved to `lost`, which is on the same file system.
  explicit UnsyncedFiles(std::string lost) : lost_(std::move(lost)) {}

  void Opened(int fd);  // for writing
  void Made(const std::string& folder) { names_.push_back({folder, lost_}); }
  void Renamed(const std::string& from, const std::string& to) { names_.push_back({to, from}); }  // `to` is a new name
  void Synced(int fd);

  void LosePower();

 private:
  struct Name {
    std::string path;
    std::string before;  // where what it names was before
  };

  const std::string lost_;
  std::vector<int> files_;   // descriptors of its own
  std::vector<Name> names_;  // the oldest first
};

}  // namespace ronda

#endif  // RONDA_TESTS_MULTIPROCESS_UNSYNCED_FILES_H_
