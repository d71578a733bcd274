#include "runtime/launch/shell_quote.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "runtime/launch/shell_words.h"

namespace ronda {
namespace {

TEST(ShellQuoteTest, PlainWordsStayAsTheyAre) {
  EXPECT_EQ(ShellQuote("./train"), "./train");
  EXPECT_EQ(ShellQuote("-H"), "-H");
  EXPECT_EQ(ShellQuote("a:2,b=1@x%+_"), "a:2,b=1@x%+_");
}

TEST(ShellQuoteTest, OtherWordsAreQuoted) {
  EXPECT_EQ(ShellQuote(""), "''");
  EXPECT_EQ(ShellQuote("a b"), "'a b'");
  EXPECT_EQ(ShellQuote("it's"), "'it'\\''s'");
  EXPECT_EQ(ShellQuote("$HOME"), "'$HOME'");
}

TEST(ShellQuoteTest, WordsAreReadBackAsTheyWere) {
  const std::vector<std::string> words = {"sh", "-c", "echo \"$A\" 'b' \\c; x\ny", "", "[1]*", "~"};
  const auto back = SplitShellWords(ShellQuote(words));
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(*back, words);
}

}  // namespace
}  // namespace ronda
