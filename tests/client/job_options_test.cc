// SPDX-License-Identifier: Apache-2.0

#include <cmath>
#include <cstddef>
#include <cstring>
#include <limits>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "client/job_options.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ronda {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(OptionsTest, ZeroesLeaveEverythingAsItIs) {
  const Tunables before = {.cycle_time = absl::Milliseconds(7), .fusion_threshold = 8, .cache_capacity = 9};
  ClientOptions client{.tunables = before, .process_sets = {}};
  const Tunables& tunables = client.tunables;
  const ronda_options options = RONDA_OPTIONS_INIT;
  ASSERT_TRUE(ApplyOptions(&options, &client).ok());
  ASSERT_TRUE(ApplyOptions(nullptr, &client).ok());
  EXPECT_EQ(tunables.cycle_time, before.cycle_time);
  EXPECT_EQ(tunables.fusion_threshold, before.fusion_threshold);
  EXPECT_EQ(tunables.cache_capacity, before.cache_capacity);
  EXPECT_EQ(tunables.stall_warning, before.stall_warning);
  EXPECT_EQ(tunables.stall_deadline, before.stall_deadline);
  EXPECT_EQ(tunables.start_timeout, before.start_timeout);
}

TEST(OptionsTest, ValuesAreSetInTheirUnits) {
  ClientOptions client;
  const Tunables& tunables = client.tunables;
  const ronda_options options = {sizeof(ronda_options), 2.5, 4096, 10, 0.5, 90, 3, nullptr, 0};
  ASSERT_TRUE(ApplyOptions(&options, &client).ok());
  EXPECT_EQ(tunables.cycle_time, absl::Microseconds(2500));
  EXPECT_EQ(tunables.fusion_threshold, 4096u);
  EXPECT_EQ(tunables.cache_capacity, 10u);
  EXPECT_EQ(tunables.stall_warning, absl::Milliseconds(500));
  EXPECT_EQ(tunables.stall_deadline, absl::Seconds(90));
  EXPECT_EQ(tunables.start_timeout, absl::Seconds(3));
}

TEST(OptionsTest, NegativeNumbersSwitchOff) {
  ClientOptions client{.tunables = {.cycle_time = absl::Seconds(1)}, .process_sets = {}};
  const Tunables& tunables = client.tunables;
  const ronda_options options = {sizeof(ronda_options), -1, -1, -1, -1, -1, 0, nullptr, 0};
  ASSERT_TRUE(ApplyOptions(&options, &client).ok());
  EXPECT_EQ(tunables.cycle_time, absl::ZeroDuration());
  EXPECT_EQ(tunables.fusion_threshold, 0u);
  EXPECT_EQ(tunables.cache_capacity, 0u);
  EXPECT_EQ(tunables.stall_warning, absl::InfiniteDuration());
  EXPECT_EQ(tunables.stall_deadline, absl::InfiniteDuration());
}

TEST(OptionsTest, SenselessValuesAreNamed) {
  ClientOptions client;
  ronda_options options = RONDA_OPTIONS_INIT;
  options.start_timeout_s = -1;
  EXPECT_THAT(std::string(ApplyOptions(&options, &client).message()), HasSubstr("start_timeout_s is -1"));
  options.start_timeout_s = 0;
  options.stall_warning_s = std::nan("");
  EXPECT_THAT(std::string(ApplyOptions(&options, &client).message()), HasSubstr("stall_warning_s"));
  options.stall_warning_s = 0;
  options.struct_size = 3;
  EXPECT_THAT(std::string(ApplyOptions(&options, &client).message()), HasSubstr("RONDA_OPTIONS_INIT"));
}

// The limits are those of the environment variables.
TEST(OptionsTest, ValuesThatAreOutOfRangeAreNamed) {
  const double infinite = std::numeric_limits<double>::infinity();
  const auto error_of = [](const ronda_options& options) {
    ClientOptions client;
    return std::string(ApplyOptions(&options, &client).message());
  };
  ronda_options options = RONDA_OPTIONS_INIT;
  options.cycle_time_ms = infinite;
  EXPECT_EQ(error_of(options), "ronda_options.cycle_time_ms is inf: it must be between 0 and 1h");
  options.cycle_time_ms = 3600.0 * 1000;
  EXPECT_EQ(error_of(options), "");
  options.cache_capacity = (1 << 24) + 1;
  EXPECT_EQ(error_of(options), "ronda_options.cache_capacity is 16777217: it must be at most 16777216");
  options.cache_capacity = 1 << 24;
  EXPECT_EQ(error_of(options), "");
  options.start_timeout_s = 25 * 3600;
  EXPECT_EQ(error_of(options), "ronda_options.start_timeout_s is 90000: it must be between 1ms and 24h");
  options.start_timeout_s = 24 * 3600;
  EXPECT_EQ(error_of(options), "");
  options.stall_deadline_s = 1e-12;
  EXPECT_EQ(error_of(options), "ronda_options.stall_deadline_s is 1e-12: it must be between 1ns and inf");
  options.stall_deadline_s = infinite;
  EXPECT_EQ(error_of(options), "");
}

// The first version of ronda_options ended with padding, which programs of that version do not set.
TEST(OptionsTest, AnOldProgramsStructIsReadUpToItsEnd) {
  ronda_options options = RONDA_OPTIONS_INIT;
  std::memset(&options, 0xff, sizeof(options));
  std::memset(&options, 0, offsetof(ronda_options, process_set_count) + sizeof(int));
  options.struct_size = offsetof(ronda_options, master_address);
  options.cache_capacity = 7;
  ClientOptions client;
  ASSERT_TRUE(ApplyOptions(&options, &client).ok());
  EXPECT_EQ(client.tunables.cache_capacity, 7u);
  const auto variables = OverrideEnvironment(&options, [](const char*) { return std::nullopt; });
  ASSERT_TRUE(variables.ok()) << variables.status();
  EXPECT_EQ(variables->origin, "");
  EXPECT_EQ(variables->reader("RONDA_RANK"), std::nullopt);
}

// The second version of ronda_options also ended with padding. It was too small for the later field `epoch`.
TEST(OptionsTest, AProgramWithoutEpochsHasNone) {
  ronda_options options = RONDA_OPTIONS_INIT;
  std::memset(&options, 0xff, sizeof(options));
  std::memset(&options, 0, offsetof(ronda_options, local_size) + sizeof(int));
  options.struct_size = offsetof(ronda_options, epoch);
  const auto variables = OverrideEnvironment(&options, [](const char*) { return std::nullopt; });
  ASSERT_TRUE(variables.ok()) << variables.status();
  EXPECT_EQ(variables->reader("RONDA_EPOCH"), std::nullopt);
}

TEST(OptionsTest, TheEpochComesBeforeThatOfTheEnvironment) {
  const auto environment = [](const char* name) -> std::optional<std::string> {
    if (name == absl::string_view("RONDA_EPOCH")) return "3";
    return std::nullopt;
  };
  ronda_options options = RONDA_OPTIONS_INIT;
  EXPECT_EQ(OverrideEnvironment(&options, environment)->reader("RONDA_EPOCH"), "3");
  options.epoch = 4;
  const auto variables = OverrideEnvironment(&options, environment);
  EXPECT_EQ(variables->reader("RONDA_EPOCH"), "4");
  EXPECT_EQ(variables->origin, " (ronda_options gives RONDA_EPOCH)");
  options.epoch = -1;
  EXPECT_EQ(OverrideEnvironment(&options, environment)->reader("RONDA_EPOCH"), "-1") << "its reader refuses it";
}

TEST(OptionsTest, ProcessSetsAreCopied) {
  const int evens[2] = {0, 2}, odds[1] = {1};
  const ronda_rank_list lists[2] = {{evens, 2}, {odds, 1}};
  ronda_options options = RONDA_OPTIONS_INIT;
  options.process_sets = lists;
  options.process_set_count = 2;
  ClientOptions client;
  ASSERT_TRUE(ApplyOptions(&options, &client).ok());
  EXPECT_THAT(client.process_sets, ElementsAre(ElementsAre(0, 2), ElementsAre(1)));
}

TEST(OptionsTest, ProcessSetsThatAreNotThereAreNamed) {
  const ronda_rank_list empty = {nullptr, 0};
  ronda_options options = RONDA_OPTIONS_INIT;
  options.process_sets = &empty;
  options.process_set_count = 1;
  ClientOptions client;
  EXPECT_THAT(std::string(ApplyOptions(&options, &client).message()), HasSubstr("process_sets[0] has no ranks"));
  options.process_sets = nullptr;
  EXPECT_THAT(std::string(ApplyOptions(&options, &client).message()), HasSubstr("process_set_count is 1"));
  options.process_set_count = -1;
  EXPECT_THAT(std::string(ApplyOptions(&options, &client).message()), HasSubstr("process_set_count is -1"));
}

}  // namespace

}  // namespace ronda
