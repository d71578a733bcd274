// SPDX-License-Identifier: Apache-2.0

#include "runtime/net/sockets.h"

#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ronda {
namespace {

using ::testing::HasSubstr;

TEST(ListenAtTest, APortThatIsTakenIsNamed) {
  const UniqueFd first = *ListenAt(*ResolveEndpoint("127.0.0.1", 0));
  const Endpoint taken = *ResolveEndpoint("127.0.0.1", *BoundPort(first.get()));
  const absl::Status status = ListenAt(taken).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(std::string(status.message()), HasSubstr(NumericText(taken)));
}

TEST(ListenAtTest, AnAddressOfAnotherHostIsNamed) {
  const absl::Status status =
      ListenAt({.host = "192.0.2.7", .family = AddressFamily::kIPv4, .address = "192.0.2.7", .port = 0}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("192.0.2.7"));
}

TEST(ListenOnPathTest, ASocketOfThatNameIsReplacedAndAnotherFileIsNot) {
  const std::string path = absl::StrCat("/tmp/ronda-sockets-test-", getpid());
  { const UniqueFd earlier = *ListenOnPath(path); }
  EXPECT_TRUE(ListenOnPath(path).ok());
  unlink(path.c_str());
  { std::ofstream(path) << "kept"; }
  EXPECT_EQ(ListenOnPath(path).status().code(), absl::StatusCode::kAlreadyExists);
  std::string word;
  std::ifstream(path) >> word;
  EXPECT_EQ(word, "kept");
  unlink(path.c_str());
}

TEST(ListenOnPathTest, APathThatIsTooLongIsRefused) {
  const absl::Status status = ListenOnPath("/tmp/" + std::string(200, 'x')).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("107 bytes at most"));
}

TEST(SocketAddressTest, AddressThatIsNoNumberIsRefused) {
  for (const AddressFamily family : {AddressFamily::kIPv4, AddressFamily::kIPv6}) {
    EXPECT_EQ(ToSocketAddress({.family = family, .address = "localhost"}).status().code(),
              absl::StatusCode::kInvalidArgument);
  }
}

TEST(SocketAddressTest, TextIsThatOfItsFamily) {
  EXPECT_EQ(NumericText(*ToSocketAddress(*ResolveEndpoint("127.0.0.1", 80))), "127.0.0.1:80");
  EXPECT_EQ(NumericText(*ToSocketAddress(*ResolveEndpoint("::1", 80))), "[::1]:80");
}

}  // namespace
}  // namespace ronda
