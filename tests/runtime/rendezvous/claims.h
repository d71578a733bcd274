// SPDX-License-Identifier: Apache-2.0

// Makes members and claims of jobs that exist only in tests.
#ifndef RONDA_TESTS_RUNTIME_RENDEZVOUS_CLAIMS_H_
#define RONDA_TESTS_RUNTIME_RENDEZVOUS_CLAIMS_H_

#include <string>

#include "absl/strings/str_cat.h"
#include "runtime/rendezvous/rendezvous_table.h"

namespace ronda::testing {

// Returns a member. For example, rank 3 has pid 1003 on host "a".
inline Member MemberOf(RankId rank, const std::string& host = "a") {
  return {
      .peer = {.rank = rank, .host = host, .pid = 1000 + rank}, .host_id = absl::StrCat(host, "-id"), .version = "1.0"};
}

inline JoinClaim ClaimOf(RankId rank, int size) { return {.member = MemberOf(rank), .size = size}; }

}  // namespace ronda::testing

#endif  // RONDA_TESTS_RUNTIME_RENDEZVOUS_CLAIMS_H_
