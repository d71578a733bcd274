#include "client/argument_checks.h"

#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"
#include "gtest/gtest.h"

namespace ronda {
namespace {

TEST(Utf8Test, AcceptsTextOfAllLengths) {
  EXPECT_TRUE(IsPrintableUtf8(""));
  EXPECT_TRUE(IsPrintableUtf8("layer.0/conv1 weight~"));
  EXPECT_TRUE(IsPrintableUtf8("größe"));             // two bytes
  EXPECT_TRUE(IsPrintableUtf8("重み"));              // three
  EXPECT_TRUE(IsPrintableUtf8("\xf0\x9f\x90\x8d"));  // four
  EXPECT_TRUE(IsPrintableUtf8("\xf4\x8f\xbf\xbf"));  // the last code point
  EXPECT_TRUE(IsPrintableUtf8("\xed\x9f\xbf"));      // just below the surrogates
}

TEST(Utf8Test, RefusesControlCharacters) {
  EXPECT_FALSE(IsPrintableUtf8("a\nb"));
  EXPECT_FALSE(IsPrintableUtf8("\x1b[31m"));
  EXPECT_FALSE(IsPrintableUtf8("\x7f"));
  EXPECT_FALSE(IsPrintableUtf8(absl::string_view("a\0b", 3)));
}

// Long names are looked at eight bytes at a time: every byte, at every place, among printable ASCII.
TEST(Utf8Test, EveryByteIsJudgedAtEveryPlace) {
  for (int byte = 0; byte < 256; ++byte) {
    for (size_t place = 0; place < 20; ++place) {
      std::string name(20, 'a' + static_cast<char>(place));
      name[place] = static_cast<char>(byte);
      EXPECT_EQ(IsPrintableUtf8(name), byte >= 0x20 && byte < 0x7f) << byte << " at " << place;
    }
  }
  EXPECT_TRUE(IsPrintableUtf8("layer.0/größe/重み/of-a-name-that-is-long"));
}

TEST(Utf8Test, RefusesWhatIsNotUtf8) {
  EXPECT_FALSE(
      IsPrintableUtf8("gr\xf6\xdf"
                      "e"));                          // Latin-1
  EXPECT_FALSE(IsPrintableUtf8("\x80"));              // a continuation alone
  EXPECT_FALSE(IsPrintableUtf8("\xc0\xaf"));          // overlong
  EXPECT_FALSE(IsPrintableUtf8("\xe0\x9f\xbf"));      // overlong
  EXPECT_FALSE(IsPrintableUtf8("\xf0\x8f\xbf\xbf"));  // overlong
  EXPECT_FALSE(IsPrintableUtf8("\xed\xa0\x80"));      // a surrogate
  EXPECT_FALSE(IsPrintableUtf8("\xf4\x90\x80\x80"));  // beyond the last code point
  EXPECT_FALSE(IsPrintableUtf8("\xff"));
}

TEST(Utf8Test, RefusesCharactersCutOff) {
  EXPECT_FALSE(IsPrintableUtf8("\xc3"));
  EXPECT_FALSE(IsPrintableUtf8("\xe9\x87"));
  EXPECT_FALSE(IsPrintableUtf8("\xf0\x9f\x90"));
  EXPECT_FALSE(IsPrintableUtf8("\xf0\x9f\x90z"));
}

}  // namespace
}  // namespace ronda
