#ifndef RONDA_RUNTIME_MONITOR_SHORT_NAME_H_
#define RONDA_RUNTIME_MONITOR_SHORT_NAME_H_

#include <cstddef>

#include "absl/strings/string_view.h"

namespace ronda {

// The beginning of `name` that fits into `bytes`, without half a UTF-8 character at its end.
inline absl::string_view ShortName(absl::string_view name, size_t bytes) {
  if (name.size() <= bytes) return name;
  size_t end = bytes;
  while (end > 0 && (static_cast<unsigned char>(name[end]) & 0xc0) == 0x80) --end;
  return name.substr(0, end);
}

}  // namespace ronda

#endif  // RONDA_RUNTIME_MONITOR_SHORT_NAME_H_
