// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_RUNTIME_BASE_BYTES_TEXT_H_
#define RONDA_RUNTIME_BASE_BYTES_TEXT_H_

#include <cstdint>
#include <string>

namespace ronda {

// A number of bytes for people: "4 B", "1.5 KiB", "64 MiB"; at most four significant digits below 1,024 TiB.
std::string BytesText(uint64_t bytes);

}  // namespace ronda

#endif  // RONDA_RUNTIME_BASE_BYTES_TEXT_H_
