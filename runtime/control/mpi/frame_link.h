#ifndef RONDA_RUNTIME_CONTROL_MPI_PARCEL_LINK_H_
#define RONDA_RUNTIME_CONTROL_MPI_PARCEL_LINK_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/base/types.h"
#include "runtime/collectives/messages/point_to_point.h"

namespace ronda {

// What one rank says to another at a time.
struct Parcel {
  enum class Kind : uint32_t { kOpen = 1, kPiece = 2, kEnd = 3 } kind = Kind::kPiece;
  std::string content;
};

// Parcels of any length to and from one other rank, in order, over messages whose receiver names the size.
//
// A parcel is a message of a fixed size, the card, which says what follows and has room for all that most parcels hold;
// a longer content goes on in a second message. So the receiver always knows what it waits for, nobody asks the library
// which messages there are, and a report of a cached step is a single short message.
//
// Both ends have the same byte order: ranks compare it when they meet.
//
// Thread-compatible. Its buffers are the library's while a transfer is under way: it must not be destroyed then, unless
// no more calls are made.
class FrameLink {
 public:
  // `messages` outlives it.
  FrameLink(PointToPoint& messages, RankId peer) : messages_(messages), peer_(peer) {}

  FrameLink(const FrameLink&) = delete;
  FrameLink& operator=(const FrameLink&) = delete;

  RankId peer() const { return peer_; }

  // Begins to receive. To be called once.
  absl::Status Listen();

  // Queues a parcel. Errors: the library's.
  absl::Status Send(Parcel parcel);

  // What has gone since the last call, the oldest first, or nothing. Errors: the library's.
  absl::StatusOr<std::optional<Parcel::Kind>> TakeSent();

  // The next parcel, if it has come. An end is the last one.
  // Errors: INTERNAL if it makes no sense; the library's.
  absl::StatusOr<std::optional<Parcel>> TakeReceived();

  // Whether the library has any of the buffers.
  bool IsUnderWay() const { return receiving_ != Receiving::kNothing || !outgoing_.empty(); }

 private:
  static constexpr size_t kCardContent = 248;
  struct Card {
    uint32_t kind;
    uint32_t bytes;  // of the content
    char content[kCardContent];
  };
  enum class Receiving { kNothing, kCard, kRest };

  absl::Status BeginSending();
  absl::Status BeginReceivingCard();
  absl::Status CheckCard() const;
  absl::StatusOr<Parcel> FinishReceiving();

  PointToPoint& messages_;
  const RankId peer_;

  std::deque<Parcel> outgoing_;  // the first is under way
  Card card_out_ = {};
  PointToPoint::Request sending_[2] = {};
  size_t sending_count_ = 0;

  Receiving receiving_ = Receiving::kNothing;
  Card card_in_ = {};
  std::string rest_in_;
  PointToPoint::Request receipt_ = {};
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_CONTROL_MPI_PARCEL_LINK_H_
