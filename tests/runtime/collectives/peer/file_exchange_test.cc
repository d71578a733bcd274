// SPDX-License-Identifier: Apache-2.0

#include "runtime/collectives/peer/file_exchange.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"

namespace ronda {
namespace {

using ::testing::HasSubstr;

using Files = std::vector<std::vector<UniqueFd>>;

UniqueFd FileWith(const std::string& content) {
  UniqueFd file(memfd_create("test", MFD_CLOEXEC));
  EXPECT_EQ(pwrite(file.get(), content.data(), content.size(), 0), static_cast<ssize_t>(content.size()));
  return file;
}

std::string ContentOf(const UniqueFd& file) {
  char text[32] = {};
  EXPECT_GE(pread(file.get(), text, sizeof(text) - 1, 0), 0);
  return text;
}

// The ranks' numbers in the job are 10, 11, ...
struct Ranks {
  explicit Ranks(int size) {
    for (int i = 0; i < size; ++i) {
      exchanges.push_back(*FileExchange::Open());
      addresses.push_back(exchanges.back().address());
      numbers.push_back(10 + i);
    }
  }

  absl::StatusOr<Files> Exchange(int self, absl::Duration deadline, const absl::Status& failure = absl::OkStatus()) {
    std::vector<UniqueFd> own;
    own.push_back(FileWith(absl::StrCat("pad ", self)));
    if (self == 0) own.push_back(FileWith("words"));
    return exchanges[static_cast<size_t>(self)].Exchange(
        own, addresses, numbers, self, {.deadline = deadline, .job_failure = [=] { return failure; }});
  }

  std::vector<FileExchange> exchanges;
  std::vector<FileExchange::Address> addresses;
  std::vector<RankId> numbers;
};

// Sends a file to `to`, claiming to be rank 5, but without the secret.
void SendForeign(const FileExchange::Address& to) {
  const UniqueFd socket(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_un name = {};
  name.sun_family = AF_UNIX;
  const size_t length = std::strlen(to.name.data());
  std::memcpy(name.sun_path + 1, to.name.data(), length);
  struct {
    std::array<uint8_t, 16> secret = {};
    int32_t sender = 5;
  } letter;
  const UniqueFd file = FileWith("foreign");
  const int number = file.get();
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  iovec part = {.iov_base = &letter, .iov_len = sizeof(letter)};
  msghdr header = {.msg_name = &name,
                   .msg_namelen = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + length),
                   .msg_iov = &part,
                   .msg_iovlen = 1,
                   .msg_control = control,
                   .msg_controllen = sizeof(control)};
  cmsghdr* const rights = CMSG_FIRSTHDR(&header);
  rights->cmsg_level = SOL_SOCKET;
  rights->cmsg_type = SCM_RIGHTS;
  rights->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(rights), &number, sizeof(int));
  EXPECT_EQ(sendmsg(socket.get(), &header, 0), static_cast<ssize_t>(sizeof(letter)));
}

TEST(FileExchangeTest, EveryRankGetsTheFilesOfAll) {
  constexpr int kRanks = 8;
  Ranks ranks(kRanks);
  SendForeign(ranks.addresses[3]);
  std::vector<std::thread> threads;
  for (int self = 0; self < kRanks; ++self) {
    threads.emplace_back([&ranks, self] {
      const absl::StatusOr<Files> files = ranks.Exchange(self, absl::Seconds(50));
      ASSERT_EQ(files.status(), absl::OkStatus());
      for (size_t i = 0; i < kRanks; ++i) EXPECT_EQ(ContentOf((*files)[i][0]), absl::StrCat("pad ", i));
      ASSERT_EQ((*files)[0].size(), 2u);
      EXPECT_EQ(ContentOf((*files)[0][1]), "words");
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(FileExchangeTest, ARankThatDoesNotSendIsNamed) {
  Ranks ranks(3);
  // One after the other: the socket of rank 11 keeps the files of rank 10, so only those of rank 12 are missing.
  EXPECT_FALSE(ranks.Exchange(0, absl::Milliseconds(1)).ok());
  const absl::Status status = ranks.Exchange(1, absl::Milliseconds(1)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(status.message()), HasSubstr("for rank 12 to exchange the files"));
}

TEST(FileExchangeTest, TheJobsFailureEndsTheWait) {
  Ranks ranks(2);
  EXPECT_EQ(ranks.Exchange(0, absl::Seconds(50), absl::UnavailableError("rank 11 has died")).status(),
            absl::UnavailableError("rank 11 has died"));
}

}  // namespace
}  // namespace ronda
