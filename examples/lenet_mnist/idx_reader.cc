// SPDX-License-Identifier: Apache-2.0

#include "examples/lenet_mnist/idx_reader.h"

#include <zlib.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

namespace lenet {
namespace {

constexpr std::size_t kMaxFileBytes = std::size_t{1} << 30;  // far more than MNIST's 47 MB; stops decompression bombs
constexpr std::size_t kChunkBytes = std::size_t{1} << 18;
constexpr std::size_t kMagicBytes = 4;
constexpr std::size_t kDimensionBytes = 4;
constexpr std::uint8_t kUnsignedBytes = 0x08;

struct GzClose {
  void operator()(gzFile_s* file) const { gzclose_r(file); }
};

[[noreturn]] void Fail(const std::string& path, const std::string& what) { throw DataError(path + ": " + what); }

// Returns zlib's message for the last error, or the system's message if zlib did not cause it.
std::string GzErrorText(gzFile file) {
  int code = Z_OK;
  const char* text = gzerror(file, &code);
  return code == Z_ERRNO ? std::strerror(errno) : text;
}

// Reads the whole file. zlib passes files that are not gzipped through unchanged.
std::vector<std::uint8_t> ReadBytes(const std::string& path) {
  std::unique_ptr<gzFile_s, GzClose> file(gzopen(path.c_str(), "rb"));
  if (file == nullptr) Fail(path, std::string("cannot open it: ") + std::strerror(errno));
  std::vector<std::uint8_t> bytes;
  for (;;) {
    const std::size_t before = bytes.size();
    bytes.resize(before + kChunkBytes);
    const int got = gzread(file.get(), bytes.data() + before, kChunkBytes);
    bytes.resize(before + (got > 0 ? static_cast<std::size_t>(got) : 0));
    // If a gzip stream is truncated, gzread() returns the available bytes without an error, and only gzerror() reports
    // it.
    int code = Z_OK;
    gzerror(file.get(), &code);
    if (got < 0 || code != Z_OK) Fail(path, "cannot read it: " + GzErrorText(file.get()));
    if (got == 0) return bytes;
    if (bytes.size() > kMaxFileBytes) Fail(path, "holds more than 1 GiB, which no MNIST file does");
  }
}

std::string Hex(std::uint8_t byte) {
  char text[8];
  std::snprintf(text, sizeof(text), "0x%02x", byte);
  return text;
}

std::size_t BigEndian32(const std::uint8_t* bytes) {
  return (std::size_t{bytes[0]} << 24) | (std::size_t{bytes[1]} << 16) | (std::size_t{bytes[2]} << 8) | bytes[3];
}

std::vector<std::size_t> ParseShape(const std::string& path, const std::vector<std::uint8_t>& bytes) {
  if (bytes.size() < kMagicBytes)
    Fail(path, "truncated: " + std::to_string(bytes.size()) + " bytes hold no IDX header");
  if (bytes[0] != 0 || bytes[1] != 0) {
    Fail(path, "not an IDX file: it begins with " + Hex(bytes[0]) + " " + Hex(bytes[1]) + " instead of 0x00 0x00");
  }
  if (bytes[2] != kUnsignedBytes) Fail(path, "holds elements of type " + Hex(bytes[2]) + " instead of bytes (0x08)");
  const std::size_t dimensions = bytes[3];
  if (dimensions == 0) Fail(path, "its header announces no dimensions");
  if (bytes.size() < kMagicBytes + dimensions * kDimensionBytes) {
    Fail(path, "truncated within its header of " + std::to_string(dimensions) + " dimensions");
  }
  std::vector<std::size_t> shape(dimensions);
  for (std::size_t i = 0; i < dimensions; ++i) shape[i] = BigEndian32(bytes.data() + kMagicBytes + i * kDimensionBytes);
  return shape;
}

// Returns the product of the dimensions, capped at kMaxFileBytes + 1, because a damaged header must not cause an
// overflow.
std::size_t Elements(const std::vector<std::size_t>& shape) {
  std::size_t elements = 1;
  for (const std::size_t dimension : shape) {
    if (dimension == 0) return 0;
    elements = elements > kMaxFileBytes / dimension ? kMaxFileBytes + 1 : elements * dimension;
  }
  return elements;
}

std::string ShapeText(const std::vector<std::size_t>& shape) {
  std::string text;
  for (const std::size_t dimension : shape) text += (text.empty() ? "" : "x") + std::to_string(dimension);
  return text;
}

}  // namespace

IdxArray ReadIdx(const std::string& path) {
  std::vector<std::uint8_t> bytes = ReadBytes(path);
  IdxArray array{ParseShape(path, bytes), {}};
  const std::size_t header = kMagicBytes + array.shape.size() * kDimensionBytes;
  const std::size_t present = bytes.size() - header;
  if (present != Elements(array.shape)) {
    const std::string damage = present < Elements(array.shape) ? "truncated" : "too long";
    Fail(path, damage + ": its header announces " + ShapeText(array.shape) + " bytes, but " + std::to_string(present) +
                   " follow");
  }
  bytes.erase(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(header));
  array.data = std::move(bytes);
  return array;
}

}  // namespace lenet
