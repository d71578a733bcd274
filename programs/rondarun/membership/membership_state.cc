// SPDX-License-Identifier: Apache-2.0

// Describes JobMembership's state and computes fingerprints, for tests that compare states.
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/hash/hash.h"
#include "absl/strings/str_cat.h"
#include "programs/rondarun/membership/membership.h"

namespace ronda {

std::string JobMembership::Describe(absl::Time now) const {
  std::string text = absl::StrCat(
      "epoch ", epoch_, is_over_ ? " over" : "", is_finishing_ ? " finishing" : "", is_start_over_ ? " started" : "",
      "; start failures ", start_failures_, "; unmet ", unmet_, " ", failures_to_meet_, "; failed ", failures_at_step_,
      " times at ", failed_step_.value_or(-2), "; joining ", MillisecondsUntil(join_deadline_, now), "; elastic ",
      MillisecondsUntil(elastic_deadline_, now), "; failure ", failure_.has_value() ? failure_->exit_code : 0);
  for (const auto& [id, member] : members_) {
    absl::StrAppend(&text, "; member ", id, " state ", static_cast<int>(member.state), " epoch ", member.epoch,
                    " step ", member.step, member.reason.empty() ? "" : " failed", " slot ", member.slot.slot, " on ",
                    member.slot.host, " told ", static_cast<int>(member.change), member.asked_in >= 0 ? " asked" : "",
                    member.has_left ? " left" : "", " due ", MillisecondsUntil(member.deadline, now), " stop ",
                    MillisecondsUntil(member.stop_deadline, now));
  }
  return text + slots_.Describe(now);
}

// The fingerprint contains epochs and steps only as their distance from the number of the newest epoch. Of exit codes
// and texts, it contains only whether they exist.
uint64_t JobMembership::Fingerprint(absl::Time now, absl::FunctionRef<uint64_t(int)> of_process) const {
  const auto behind = [this](int64_t epoch) { return epoch < 0 ? -1 : epoch_ - epoch; };
  std::vector<std::vector<uint64_t>> slots(slots_.host_count());
  for (size_t host = 0; host < slots.size(); ++host) {
    for (int slot = 0; slot < slots_.slot_count(host); ++slot) {
      slots[host].push_back(slots_.SlotFingerprint({host, slot}, now));
    }
  }
  for (const auto& [id, member] : members_) {
    uint64_t& slot = slots[member.slot.host][static_cast<size_t>(member.slot.slot)];
    slot = absl::HashOf(slot, static_cast<int>(member.state), std::min<int64_t>(behind(member.epoch), 1),
                        behind(member.step), member.reason.empty(), member.has_joined, member.is_dismissed,
                        member.asked_in >= 0, member.asked_in == epoch_, member.has_left,
                        static_cast<int>(member.change), MillisecondsUntil(member.deadline, now),
                        MillisecondsUntil(member.stop_deadline, now), of_process(id));
  }
  std::vector<uint64_t> hosts;
  for (size_t host = 0; host < slots.size(); ++host) {
    hosts.push_back(slots_.HostFingerprint(host, std::move(slots[host]), now));
  }
  std::sort(hosts.begin(), hosts.end());
  const int64_t failed = failed_step_.has_value() ? behind(*failed_step_) : -2;
  return absl::HashOf(hosts, epoch_ < 0, is_over_, is_finishing_, is_start_over_, unmet_, failures_to_meet_,
                      failures_at_step_, failed, start_failure_.has_value(), failure_.has_value(),
                      MillisecondsUntil(join_deadline_, now), MillisecondsUntil(elastic_deadline_, now));
}

}  // namespace ronda
