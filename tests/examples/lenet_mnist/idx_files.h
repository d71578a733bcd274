// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_TESTS_EXAMPLES_LENET_MNIST_IDX_FILES_H_
#define RONDA_TESTS_EXAMPLES_LENET_MNIST_IDX_FILES_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace lenet {

// Returns the bytes of an IDX file: a header for `shape`, and then `data`, whose size need not match the shape.
std::string IdxBytes(const std::vector<std::uint32_t>& shape, const std::string& data);

std::string Gzip(const std::string& bytes);

// A directory for one test. The destructor removes the directory.
//
// Thread-compatible.
class TemporaryDirectory {
 public:
  TemporaryDirectory();
  ~TemporaryDirectory();
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;

  const std::string& path() const { return path_; }

  // Writes `bytes` to the file `name` in the directory, and returns its path.
  std::string Write(const std::string& name, const std::string& bytes) const;

 private:
  std::string path_;
};

}  // namespace lenet

#endif  // RONDA_TESTS_EXAMPLES_LENET_MNIST_IDX_FILES_H_
