// SPDX-License-Identifier: Apache-2.0

// Tests a request from another process to a rank, in memory that both processes share. The rank must refuse it, or read
// a path that it can use.
#include "runtime/monitor/rank_request.h"

#include <algorithm>
#include <cstring>
#include <memory>

#include "absl/strings/ascii.h"
#include "absl/strings/string_view.h"
#include "tests/fuzz/fuzz_input.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using ronda::RankRequestWords;
  using ronda::TimelineRequest;
  ronda::fuzz::FuzzInput input(data, size);
  const auto words = std::make_unique<RankRequestWords>();
  while (!input.empty()) {
    char* const memory = reinterpret_cast<char*>(words.get());
    const size_t at = input.Number<uint16_t>() % sizeof(RankRequestWords);
    const absl::string_view bytes = input.Text();
    std::memcpy(memory + at, bytes.data(), std::min(bytes.size(), sizeof(RankRequestWords) - at));
    const uint64_t number = words->number;
    const bool is_news = number != words->answered;
    bool was_carried_out = false;
    ronda::AnswerRequest(
        [&](const TimelineRequest& request) -> absl::StatusOr<std::string> {
          was_carried_out = true;
          const bool is_start = request.kind == TimelineRequest::Kind::kStart;
          ronda::fuzz::Require(is_start || request.path.empty(), "an end has no path");
          ronda::fuzz::Require(!is_start || request.path.starts_with('/'), "a path is absolute");
          ronda::fuzz::Require(std::none_of(request.path.begin(), request.path.end(),
                                            [](unsigned char c) { return absl::ascii_iscntrl(c); }),
                               "a path can be printed");
          return request.path;
        },
        words.get());
    if (number == 0 || !is_news) {
      ronda::fuzz::Require(!was_carried_out, "a request that is being written, or has its answer, is left alone");
      continue;
    }
    const auto answer = ronda::AnswerTo(number, *words);
    ronda::fuzz::Require(answer.has_value() && answer->ok() == was_carried_out, "each request has its answer");
    ronda::fuzz::Require(!ronda::HasRequest(*words), "a request is taken once");
  }
  return 0;
}
