#include "client/utf8.h"

#include <cstddef>
#include <cstdint>

namespace ronda {
namespace {

// The bytes that may follow a lead byte: `length` of them in all with it, the second within [low, high].
struct Sequence {
  size_t length;
  uint8_t low;
  uint8_t high;
};

// length 0: `lead` begins no character.
Sequence SequenceOf(uint8_t lead) {
  if (lead < 0x80) return {lead >= 0x20 && lead != 0x7f ? size_t{1} : size_t{0}, 0, 0};
  if (lead < 0xc2) return {0, 0, 0};  // a continuation, or an overlong form of ASCII
  if (lead < 0xe0) return {2, 0x80, 0xbf};
  if (lead == 0xe0) return {3, 0xa0, 0xbf};  // else overlong
  if (lead == 0xed) return {3, 0x80, 0x9f};  // else a surrogate
  if (lead < 0xf0) return {3, 0x80, 0xbf};
  if (lead == 0xf0) return {4, 0x90, 0xbf};  // else overlong
  if (lead < 0xf4) return {4, 0x80, 0xbf};
  if (lead == 0xf4) return {4, 0x80, 0x8f};  // else beyond U+10FFFF
  return {0, 0, 0};
}

}  // namespace

bool IsPrintableUtf8(absl::string_view text) {
  size_t i = 0;
  while (i < text.size()) {
    // Most names are nothing but ASCII.
    if (text[i] >= 0x20 && text[i] < 0x7f) {
      ++i;
      continue;
    }
    const Sequence sequence = SequenceOf(static_cast<uint8_t>(text[i]));
    if (sequence.length == 0 || sequence.length > text.size() - i) return false;
    for (size_t k = 1; k < sequence.length; ++k) {
      const auto byte = static_cast<uint8_t>(text[i + k]);
      const uint8_t low = k == 1 ? sequence.low : 0x80;
      const uint8_t high = k == 1 ? sequence.high : 0xbf;
      if (byte < low || byte > high) return false;
    }
    i += sequence.length;
  }
  return true;
}

}  // namespace ronda
