// SPDX-License-Identifier: Apache-2.0

#include "programs/monitor/serve/access.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <optional>
#include <string>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace ronda {
namespace {

using ::testing::HasSubstr;
using Verdict = Access::Verdict;

constexpr char kToken[] = "0123456789abcdef0123456789abcdef";

TEST(NameInHost, IsTheNameWithoutThePortInLowerCase) {
  EXPECT_EQ(NameInHost("LocalHost:9000"), "localhost");
  EXPECT_EQ(NameInHost("localhost"), "localhost");
  EXPECT_EQ(NameInHost("127.0.0.1:80"), "127.0.0.1");
  EXPECT_EQ(NameInHost("[::1]:9000"), "[::1]");
  EXPECT_EQ(NameInHost("[::1]"), "[::1]");
}

TEST(NameInHost, RefusesWhatIsNoHost) {
  for (const char* const host :
       {"", ":80", "a b", "localhost:", "localhost:80x", "localhost:123456", "localhost:80:80", "[::1", "[::1]80",
        "::1", "[localhost]", "user@localhost", "localhost/", "localhost\n"}) {
    EXPECT_EQ(NameInHost(host), std::nullopt) << host;
  }
}

TEST(TokenInAuthorization, IsABearersOrThePasswordOfABrowsersUser) {
  EXPECT_EQ(TokenInAuthorization("Bearer abc"), "abc");
  EXPECT_EQ(TokenInAuthorization("bearer  abc"), "abc");
  EXPECT_EQ(TokenInAuthorization(absl::StrCat("Basic ", absl::Base64Escape("anybody:a:b"))), "a:b");
  EXPECT_EQ(TokenInAuthorization(absl::StrCat("Basic ", absl::Base64Escape(":abc"))), "abc");
  for (const char* const text : {"", "abc", "Bearerabc", "Digest abc", "Basic ???", "Basic YWJj"}) {
    EXPECT_EQ(TokenInAuthorization(text), std::nullopt) << text;
  }
}

TEST(AccessTest, WelcomesTheTokenUnderEachOfItsNames) {
  const Access access(kToken, {"localhost", "127.0.0.1"});
  const std::string bearer = absl::StrCat("Bearer ", kToken);
  EXPECT_EQ(access.Judge({"localhost:1"}, {bearer}), Verdict::kWelcome);
  EXPECT_EQ(access.Judge({"127.0.0.1"}, {bearer}), Verdict::kWelcome);
  EXPECT_EQ(access.Judge({"localhost:1"}, {absl::StrCat("Basic ", absl::Base64Escape(absl::StrCat("me:", kToken)))}),
            Verdict::kWelcome);
}

TEST(AccessTest, RefusesOtherNamesBeforeItLooksAtTheToken) {
  const Access access(kToken, {"localhost"});
  const std::string bearer = absl::StrCat("Bearer ", kToken);
  EXPECT_EQ(access.Judge({"evil.example"}, {bearer}), Verdict::kWrongHost);
  EXPECT_EQ(access.Judge({"localhost.evil.example:1"}, {bearer}), Verdict::kWrongHost);
  EXPECT_EQ(access.Judge({}, {bearer}), Verdict::kWrongHost);
  EXPECT_EQ(access.Judge({"localhost", "localhost"}, {bearer}), Verdict::kWrongHost);
  EXPECT_EQ(access.Judge({"evil.example"}, {}), Verdict::kWrongHost);
}

TEST(AccessTest, RefusesOtherTokens) {
  const Access access(kToken, {"localhost"});
  EXPECT_EQ(access.Judge({"localhost"}, {}), Verdict::kNoToken);
  for (const std::string& token : {std::string(), std::string("x"), std::string(kToken) + "0",
                                   std::string(kToken).substr(1), "1" + std::string(kToken).substr(1)}) {
    EXPECT_EQ(access.Judge({"localhost"}, {"Bearer " + token}), Verdict::kWrongToken) << token;
  }
  const std::string bearer = absl::StrCat("Bearer ", kToken);
  EXPECT_EQ(access.Judge({"localhost"}, {bearer, bearer}), Verdict::kWrongToken);
}

// -- Files --

class TokenFileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = absl::StrCat(::testing::TempDir(), "/token.", getpid());
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directory(folder_);
    chmod(folder_.c_str(), 0700);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string Write(const std::string& text, mode_t mode = 0600) const {
    const std::string path = folder_ + "/token";
    std::ofstream(path) << text;
    chmod(path.c_str(), mode);
    return path;
  }
  static std::string ErrorOf(const std::string& path) { return std::string(ReadTokenFile(path).status().message()); }

  std::string folder_;
};

TEST_F(TokenFileTest, IsReadWithoutItsLineEnd) {
  EXPECT_EQ(*ReadTokenFile(Write(absl::StrCat(kToken, "\n"))), kToken);
  EXPECT_EQ(*ReadTokenFile(Write(std::string(256, 'x'), 0400)), std::string(256, 'x'));
}

TEST_F(TokenFileTest, ThatOthersMayReadIsRefused) {
  for (const mode_t mode : {0640, 0604, 0660, 0610}) {
    EXPECT_THAT(ErrorOf(Write(kToken, mode)), HasSubstr("others than you may use it; call chmod go= ")) << mode;
  }
  EXPECT_THAT(ErrorOf(Write(kToken, 0644)), HasSubstr("has mode 0644"));
}

TEST_F(TokenFileTest, OfAnotherUserIsRefused) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can give a file to another user";
  const std::string path = Write(kToken);
  ASSERT_EQ(chown(path.c_str(), 65534, 65534), 0);
  EXPECT_THAT(ErrorOf(path), HasSubstr("belongs to user 65534, not to you"));
}

TEST_F(TokenFileTest, ThatHoldsNoTokenIsRefused) {
  for (const std::string& text : {std::string(), std::string("short"), std::string(257, 'x'),
                                  std::string(kToken) + "\n" + kToken, std::string("blanks in the middle of it")}) {
    EXPECT_THAT(ErrorOf(Write(text)), HasSubstr("holds no token: a line of 16 to 256 letters")) << text;
  }
}

TEST_F(TokenFileTest, ThatIsNoFileIsRefused) {
  EXPECT_THAT(ErrorOf(folder_ + "/none"), HasSubstr("cannot open the file with the token"));
  EXPECT_THAT(ErrorOf(folder_), HasSubstr("is not a file"));
  std::filesystem::create_symlink(Write(kToken), folder_ + "/link");
  EXPECT_THAT(ErrorOf(folder_ + "/link"), HasSubstr("is a symbolic link"));
  const std::string pipe = folder_ + "/pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_THAT(ErrorOf(pipe), HasSubstr("is not a file"));
}

TEST_F(TokenFileTest, IsMadeOnceForTheUserAlone) {
  const std::string path = *EnsureTokenFile(folder_);
  struct stat info;
  ASSERT_EQ(stat(path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  const std::string token = *ReadTokenFile(path);
  EXPECT_EQ(token.size(), 64u);
  EXPECT_EQ(*EnsureTokenFile(folder_), path);
  EXPECT_EQ(*ReadTokenFile(path), token);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_), std::filesystem::directory_iterator()), 1)
      << "no draft is left";
}

class UserFolderTest : public TokenFileTest {
 protected:
  absl::StatusOr<std::string> Find() const {
    return UserFolder([this](const char* name) -> std::optional<std::string> {
      return std::string(name) == "XDG_RUNTIME_DIR" ? std::optional(folder_) : std::nullopt;
    });
  }
};

TEST_F(UserFolderTest, IsMadeForTheUserAlone) {
  EXPECT_EQ(*Find(), folder_ + "/ronda");
  struct stat info;
  ASSERT_EQ(stat((folder_ + "/ronda").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700u);
  EXPECT_EQ(*Find(), folder_ + "/ronda") << "the second time it is there";
}

TEST_F(UserFolderTest, ThatOthersMayEnterIsRefused) {
  std::filesystem::create_directory(folder_ + "/ronda");
  chmod((folder_ + "/ronda").c_str(), 0755);
  EXPECT_THAT(std::string(Find().status().message()), HasSubstr("has mode 0755: others than you may use it"));
}

TEST_F(UserFolderTest, OfAnotherUserIsRefused) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can give a folder to another user";
  std::filesystem::create_directory(folder_ + "/ronda");
  chmod((folder_ + "/ronda").c_str(), 0700);
  ASSERT_EQ(chown((folder_ + "/ronda").c_str(), 65534, 65534), 0);
  EXPECT_THAT(std::string(Find().status().message()), HasSubstr("belongs to user 65534"));
}

TEST_F(UserFolderTest, ThatIsALinkIsRefused) {
  std::filesystem::create_symlink("/tmp", folder_ + "/ronda");
  EXPECT_THAT(std::string(Find().status().message()), HasSubstr("it is no folder"));
}

}  // namespace
}  // namespace ronda
