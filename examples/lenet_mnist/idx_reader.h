// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_EXAMPLES_LENET_MNIST_IDX_READER_H_
#define RONDA_EXAMPLES_LENET_MNIST_IDX_READER_H_

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

namespace lenet {

// A missing or damaged data file; what() begins with its path.
class DataError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// The content of an IDX file of unsigned bytes, in row-major order: data.size() is the product of `shape`.
struct IdxArray {
  std::vector<std::size_t> shape;
  std::vector<std::uint8_t> data;
};

// Reads the IDX file `path`, gzipped or not. An IDX file begins with two zero bytes. They are followed by the element
// type (0x08 for unsigned bytes, the only type supported here), the number of dimensions, each dimension as a 32-bit
// big-endian number, and the elements.
//
// Throws DataError if the file cannot be read, is damaged, or is not an IDX file.
IdxArray ReadIdx(const std::string& path);

}  // namespace lenet

#endif  // RONDA_EXAMPLES_LENET_MNIST_IDX_READER_H_
