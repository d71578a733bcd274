// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_RUNTIME_RENDEZVOUS_MESSAGE_RENDEZVOUS_H_
#define RONDA_RUNTIME_RENDEZVOUS_MESSAGE_RENDEZVOUS_H_

#include <deque>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "runtime/control/messages/frame_link.h"
#include "runtime/point_to_point/point_to_point.h"
#include "runtime/rendezvous/rendezvous_table.h"

namespace ronda {

// A rendezvous through a PointToPoint instead of a gRPC server. Every rank sends rank 0 a message about itself. Once
// rank 0 has all messages, it sends every rank the member list, or the reason why there is none.
//
// Thread-compatible. If Run() fails, some transfers may still be in progress, so `messages` must not be used after this
// object has been destroyed.
class MessageRendezvous {
 public:
  struct Options {
    std::string job_id;  // rank 0's is used
    JoinClaim claim;     // this rank's
    absl::Duration timeout = absl::Seconds(30);
  };

  // `messages` must connect all ranks of the job, and must outlive this object.
  MessageRendezvous(PointToPoint& messages, Options options) : messages_(messages), options_(std::move(options)) {}

  // Runs the rendezvous. Blocks until rank 0 has the messages of all ranks.
  // Errors: DEADLINE_EXCEEDED that names the missing ranks; FAILED_PRECONDITION, on all ranks, if the ranks differ in
  // facts that must be equal; INVALID_ARGUMENT if a claim is invalid; the errors of `messages`.
  absl::StatusOr<MemberList> Run();

 private:
  absl::StatusOr<MemberList> Host();
  absl::StatusOr<MemberList> Join();
  absl::StatusOr<MemberList> AwaitAll();
  absl::Status Gather(RendezvousTable& table);
  absl::StatusOr<bool> ReceiveClaim(FrameLink& link, RendezvousTable& table);
  absl::Status Answer(const absl::StatusOr<MemberList>& member_list);
  absl::StatusOr<std::string> AwaitAnswer(FrameLink& link);
  // Waits until the last frames of all links have been sent.
  absl::Status AwaitSent(absl::Duration timeout);

  PointToPoint& messages_;
  const Options options_;
  absl::Duration end_;
  std::deque<FrameLink> links_;  // rank 0: to all others, by rank; others: to rank 0
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_RENDEZVOUS_MESSAGE_RENDEZVOUS_H_
