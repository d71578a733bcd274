// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_RUNTIME_BASE_BYTES_TEXT_H_
#define RONDA_RUNTIME_BASE_BYTES_TEXT_H_

#include <cstdint>
#include <string>

namespace ronda {

// Formats a number of bytes for people to read, for example "4 B", "1.5 KiB" or "64 MiB". Below 1,024 TiB the text has
// at most four significant digits.
std::string BytesText(uint64_t bytes);

}  // namespace ronda

#endif  // RONDA_RUNTIME_BASE_BYTES_TEXT_H_
