#ifndef RONDA_CLIENT_UTF8_H_
#define RONDA_CLIENT_UTF8_H_

#include "absl/strings/string_view.h"

namespace ronda {

// Whether `text` is well-formed UTF-8 (Unicode 15, table 3-7) without ASCII control characters: what protobuf accepts
// in a string field and what can be printed on one line of a log.
bool IsPrintableUtf8(absl::string_view text);

}  // namespace ronda

#endif  // RONDA_CLIENT_UTF8_H_
