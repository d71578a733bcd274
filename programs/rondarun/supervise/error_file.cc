// SPDX-License-Identifier: Apache-2.0

#include "programs/rondarun/supervise/error_file.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>

#include "absl/strings/ascii.h"

namespace ronda {

ErrorFile::ErrorFile() : fd_(memfd_create(kName, MFD_CLOEXEC)) {}

std::string ErrorFile::Read() const {
  std::string text(kMaxBytes, '\0');
  const ssize_t count = fd_.valid() ? pread(fd_.get(), text.data(), text.size(), 0) : 0;
  text.resize(static_cast<size_t>(std::max<ssize_t>(count, 0)));
  text.resize(std::min(text.size(), text.find('\n')));
  std::erase_if(text, [](char c) { return absl::ascii_iscntrl(static_cast<unsigned char>(c)); });
  return text;
}

}  // namespace ronda
