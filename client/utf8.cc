#include "client/utf8.h"

#include <cstddef>
#include <cstdint>
#include <cstring>

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

// Names are mostly printable ASCII: how many of the first bytes are, a multiple of eight; those after it may be, too.
size_t AsciiPrefix(absl::string_view text) {
  constexpr uint64_t kEach = 0x0101010101010101;  // times a byte: that byte in each of the eight
  constexpr uint64_t kHigh = 0x80 * kEach;
  size_t i = 0;
  for (; text.size() - i >= sizeof(uint64_t); i += sizeof(uint64_t)) {
    uint64_t bytes;
    std::memcpy(&bytes, text.data() + i, sizeof(bytes));
    // Without a high bit anywhere no sum carries into the next byte: from 0x7f on the one sets the high bit, and below
    // 0x20 the other leaves it clear.
    const uint64_t too_high = bytes + (0x80 - 0x7f) * kEach;
    const uint64_t high_enough = bytes + (0x80 - 0x20) * kEach;
    if (((bytes | too_high | ~high_enough) & kHigh) != 0) break;
  }
  return i;
}

}  // namespace

bool IsPrintableUtf8(absl::string_view text) {
  size_t i = AsciiPrefix(text);
  while (i < text.size()) {
    // So is most of the rest.
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
