// SPDX-License-Identifier: Apache-2.0

// This file is built as C++17 with -pedantic, because trainers may build ronda.hpp with these options.
#include <memory>
#include <string>
#include <type_traits>
#include <utility>

#include "client/ronda.hpp"
#include "gtest/gtest.h"

static_assert(__cplusplus == 201703L, "this test is there to build ronda.hpp as C++17");

namespace {

TEST(StatusTest, TheDefaultIsOk) {
  const ronda::Status status;
  EXPECT_TRUE(status.ok());
  EXPECT_EQ(status.code(), RONDA_OK);
  EXPECT_EQ(status.message(), "");
  EXPECT_NO_THROW(status.throw_if_error());
}

TEST(StatusTest, AnErrorIsThrownWithItsCodeAndMessage) {
  const ronda::Status status(RONDA_ERROR_DEADLINE, "rank 1 is late");
  EXPECT_FALSE(status.ok());
  try {
    status.throw_if_error();
    FAIL() << "nothing was thrown";
  } catch (const ronda::Error& error) {
    EXPECT_EQ(error.code(), RONDA_ERROR_DEADLINE);
    EXPECT_STREQ(error.what(), "rank 1 is late");
  }
}

TEST(StatusTest, AnErrorIsARuntimeError) {
  static_assert(std::is_base_of_v<std::runtime_error, ronda::Error>);
  static_assert(std::is_nothrow_copy_constructible_v<ronda::Error>);
}

TEST(ResultTest, HoldsAValueThatMayOnlyMove) {
  ronda::Result<std::unique_ptr<int>> result(std::make_unique<int>(3));
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(*result.value(), 3);
  EXPECT_EQ(*std::move(result).value(), 3);
}

TEST(ResultTest, WithoutAValueItThrowsTheError) {
  ronda::Result<int> result(ronda::Status(RONDA_ERROR_MISMATCH, "ranks disagree"));
  EXPECT_FALSE(result.ok());
  EXPECT_EQ(result.status().code(), RONDA_ERROR_MISMATCH);
  EXPECT_THROW(result.value(), ronda::Error);
  EXPECT_THROW(std::move(result).value(), ronda::Error);
}

}  // namespace
