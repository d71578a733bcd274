#include "runtime/launch/shell_words.h"

#include <string>

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

TEST(ShellWordsTest, NothingIsExpanded) {
  EXPECT_THAT(*SplitShellWords("$HOME * `ls` ~"), ElementsAre("$HOME", "*", "`ls`", "~"));
}

TEST(ShellWordsTest, WhatIsNotClosedIsAnError) {
  for (const char* text : {"'", "a 'b", "\"", "\"a\\\"", "x\""}) {
    EXPECT_THAT(std::string(SplitShellWords(text).status().message()), HasSubstr("that is not closed")) << text;
  }
  EXPECT_THAT(std::string(SplitShellWords("a\\").status().message()), HasSubstr("backslash"));
  EXPECT_THAT(std::string(SplitShellWords("\"a\\").status().message()), HasSubstr("backslash"));
}

}  // namespace
}  // namespace ronda
