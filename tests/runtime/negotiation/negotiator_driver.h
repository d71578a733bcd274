// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_TESTS_RUNTIME_NEGOTIATION_NEGOTIATOR_DRIVER_H_
#define RONDA_TESTS_RUNTIME_NEGOTIATION_NEGOTIATOR_DRIVER_H_

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "runtime/negotiation/negotiator.h"

namespace ronda {

inline constexpr absl::Time kStart = absl::UnixEpoch();

inline TensorRequest Allreduce(const std::string& name, Shape shape = {3}) {
  return {.name = name, .shape = std::move(shape)};
}

inline TensorRequest JoinOf(ProcessSetId set = kGlobalProcessSet) {
  return {.name = std::string(kJoinName), .process_set = set, .op = OpType::kJoin};
}

inline TensorRequest AddSet(std::vector<RankId> members, const std::string& name = "add") {
  return {.name = name, .op = OpType::kAddProcessSet, .members = std::move(members)};
}

inline TensorRequest RemoveSet(ProcessSetId set) {
  return {.name = "remove", .op = OpType::kRemoveProcessSet, .subject = set};
}

inline TensorRequest OnSet(ProcessSetId set, TensorRequest request) {
  request.process_set = set;
  return request;
}

inline TensorRequest InGroup(const std::string& group, int size, TensorRequest request) {
  request.group = group;
  request.group_size = size;
  return request;
}

inline TensorRequest Refusal(const std::string& name, const std::string& words) {
  return {.name = name, .op = OpType::kBarrier, .refusal = words};
}

inline RankReport Report(std::vector<TensorRequest> requests) { return {.requests = std::move(requests)}; }

inline RankReport ReportById(CacheId id) { return {.cached = {id}}; }

inline RankReport Draining() { return {.presence = RankReport::Presence::kDraining}; }

inline RankReport ShuttingDown() { return {.presence = RankReport::Presence::kShuttingDown}; }

inline const Response& Spelled(const ResponseList& list, size_t bucket, size_t position = 0) {
  return std::get<Response>(list.buckets.at(bucket).executions.at(position));
}

inline CacheId IdOf(const ResponseList& list, size_t bucket) {
  return std::get<CacheId>(list.buckets.at(bucket).executions.at(0));
}

// A negotiator for tests, to which a test can pass a report in one line of code. It fuses nothing.
class NegotiatorDriver {
 public:
  explicit NegotiatorDriver(int world_size, size_t cache_capacity = 1024)
      : negotiator_({.world_size = world_size, .cache_capacity = cache_capacity, .fusion = {.threshold = 0}}) {}

  void Submit(RankId rank, std::vector<TensorRequest> requests) { Receive(rank, Report(std::move(requests))); }

  void SubmitAll(const std::vector<RankId>& ranks, const TensorRequest& request) {
    for (RankId rank : ranks) Submit(rank, {request});
  }

  void Receive(RankId rank, const RankReport& report) {
    const absl::Status status = negotiator_.Add(rank, report, kStart);
    ASSERT_TRUE(status.ok()) << status;
  }

  ResponseList Responses() { return negotiator_.TakeResponses(); }

  Negotiator& operator*() { return negotiator_; }
  Negotiator* operator->() { return &negotiator_; }

 private:
  Negotiator negotiator_;
};

}  // namespace ronda

#endif  // RONDA_TESTS_RUNTIME_NEGOTIATION_NEGOTIATOR_DRIVER_H_
