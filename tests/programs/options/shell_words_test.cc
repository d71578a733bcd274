// SPDX-License-Identifier: Apache-2.0

#include "programs/options/shell_words.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ronda {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(ShellWordsTest, BlanksSeparateWords) {
  EXPECT_THAT(*SplitShellWords("--mca  btl\ttcp \n x "), ElementsAre("--mca", "btl", "tcp", "x"));
  EXPECT_THAT(*SplitShellWords("  "), IsEmpty());
  EXPECT_THAT(*SplitShellWords(""), IsEmpty());
}

TEST(ShellWordsTest, QuotesKeepBlanks) {
  EXPECT_THAT(*SplitShellWords(R"("a b" 'c d' e" "f)"), ElementsAre("a b", "c d", "e f"));
  EXPECT_THAT(*SplitShellWords(R"("" '')"), ElementsAre("", ""));
  EXPECT_THAT(*SplitShellWords(R"("it's" 'say "x"')"), ElementsAre("it's", "say \"x\""));
}

TEST(ShellWordsTest, ABackslashQuotesTheNextCharacterButNotBetweenSingleQuotes) {
  EXPECT_THAT(*SplitShellWords(R"(a\ b \"c "d\"e" 'f\g')"), ElementsAre("a b", "\"c", "d\"e", "f\\g"));
}

TEST(ShellWordsTest, WordsAreNotExpanded) {
  EXPECT_THAT(*SplitShellWords("$HOME * `ls` ~"), ElementsAre("$HOME", "*", "`ls`", "~"));
}

TEST(ShellWordsTest, UnclosedQuoteIsAnError) {
  for (const char* text : {"'", "a 'b", "\"", "\"a\\\"", "x\""}) {
    EXPECT_THAT(std::string(SplitShellWords(text).status().message()), HasSubstr("that is not closed")) << text;
  }
  EXPECT_THAT(std::string(SplitShellWords("a\\").status().message()), HasSubstr("backslash"));
  EXPECT_THAT(std::string(SplitShellWords("\"a\\").status().message()), HasSubstr("backslash"));
}

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
