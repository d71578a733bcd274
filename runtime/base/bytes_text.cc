// SPDX-License-Identifier: Apache-2.0

#include "runtime/base/bytes_text.h"

#include <cstddef>
#include <iterator>

#include "absl/strings/str_format.h"

namespace ronda {

std::string BytesText(uint64_t bytes) {
  constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  double number = static_cast<double>(bytes);
  size_t unit = 0;
  for (; number >= 1024 && unit + 1 < std::size(kUnits); ++unit) number /= 1024;
  return absl::StrFormat("%.4g %s", number, kUnits[unit]);
}

}  // namespace ronda
