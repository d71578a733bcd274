// SPDX-License-Identifier: Apache-2.0

// Tests how rank 0 and joining ranks handle each other's messages in a rendezvous over the network.
#include "runtime/rendezvous/rank_facts.h"
#include "runtime/rendezvous/rendezvous_codec.h"
#include "runtime/rendezvous/rendezvous_table.h"
#include "tests/fuzz/fuzz_input.h"

namespace ronda::fuzz {
namespace {

constexpr int kSize = 3;

Member MemberOf(RankId rank) {
  return {.peer = {.rank = rank, .host = "node", .pid = 42}, .host_id = "boot", .version = "1"};
}

// Passes several requests to the table, one after the other, as the service does.
void Claims(FuzzInput& input) {
  RendezvousTable table({.job_id = "job", .size = kSize, .coordinator = MemberOf(0)});
  while (!input.empty()) {
    v1::JoinRequest request;
    const absl::string_view bytes = input.Text();
    if (!request.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) continue;
    const auto claim = DecodeClaim(request);
    RequireOkOrRefused(claim.status());
    if (!claim.ok()) continue;
    Require(DecodeClaim(EncodeClaim(*claim)).ok(), "a claim survives encoding");
    if (!table.Add(*claim).ok()) Require(!table.DeadlineError(absl::Seconds(1)).ok(), "a refusal is described");
  }
  if (!table.complete()) return;
  Require(table.member_list().members.size() == kSize, "a complete table has all members");
  RequireOkOrRefused(table.Agreement());
  DescribeDifferences(table.member_list().members);
}

void Answer(FuzzInput& input) {
  v1::JoinResponse response;
  const absl::string_view bytes = input.TakeRest();
  if (!response.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) return;
  const auto member_list = DecodeMemberList(response, {.member = MemberOf(1), .size = kSize});
  RequireOkOrRefused(member_list.status());
  if (member_list.ok()) Require(TopologyOf(*member_list, 1).size == kSize, "an accepted answer is for this job");
}

}  // namespace
}  // namespace ronda::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  ronda::fuzz::FuzzInput input(data, size);
  if (input.Below(2) == 0) {
    ronda::fuzz::Claims(input);
  } else {
    ronda::fuzz::Answer(input);
  }
  return 0;
}
