#include "tests/testing/fake_messages.h"

#include <cstring>
#include <map>
#include <random>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/logging.h"
#include "runtime/base/mutex.h"
#include "runtime/base/status_macros.h"

namespace ronda::testing {
namespace {

enum class Side { kSender, kReceiver };

// One message, known from the first of its two ends that has been posted.
struct Message {
  const void* source = nullptr;
  void* destination = nullptr;
  size_t sent_bytes = 0;
  size_t wanted_bytes = 0;
  bool is_sent = false;      // the sender has posted it
  bool is_wanted = false;    // the receiver has
  bool is_read = false;      // `content` holds it: the sender is done
  bool is_received = false;  // the receiver is done
  int sender_delay = 0;      // calls of each that still pass without effect
  int receiver_delay = 0;
  std::string content;
};

// The messages from one rank to another; the i-th sent is the i-th received.
struct Channel {
  uint64_t sent = 0;
  uint64_t received = 0;
  std::map<uint64_t, Message> under_way;
};

// What the ends share.
class Post {
 public:
  Post(int size, uint64_t seed)
      : size_(size), random_(seed), channels_(static_cast<size_t>(size) * static_cast<size_t>(size)) {}

  int size() const { return size_; }

  // The number of the message.
  uint64_t Send(RankId from, RankId to, const void* data, size_t bytes) {
    const MutexLock lock(&mu_);
    Channel& channel = ChannelOf(from, to);
    const uint64_t number = channel.sent++;
    Message& message = channel.under_way[number];
    message.source = data;
    message.sent_bytes = bytes;
    message.is_sent = true;
    message.sender_delay = static_cast<int>(random_() % kLongestDelay);
    message.receiver_delay = static_cast<int>(random_() % kLongestDelay);
    if (random_() % 2 == 0) Read(message);
    return number;
  }

  uint64_t Receive(RankId from, RankId to, void* data, size_t bytes) {
    const MutexLock lock(&mu_);
    Channel& channel = ChannelOf(from, to);
    const uint64_t number = channel.received++;
    Message& message = channel.under_way[number];
    message.destination = data;
    message.wanted_bytes = bytes;
    message.is_wanted = true;
    return number;
  }

  // Does what `side` can for the message; whether it is done with it.
  absl::StatusOr<bool> Advance(RankId from, RankId to, uint64_t number, Side side) {
    const MutexLock lock(&mu_);
    Channel& channel = ChannelOf(from, to);
    const auto it = channel.under_way.find(number);
    if (it == channel.under_way.end()) return true;
    Message& message = it->second;
    if (message.is_sent && message.is_wanted && message.sent_bytes != message.wanted_bytes) {
      return absl::InternalError(absl::StrCat("rank ", to, " wants ", message.wanted_bytes, " bytes of rank ", from,
                                              ", which sends ", message.sent_bytes));
    }
    const bool is_done = side == Side::kSender ? AdvanceSender(message) : AdvanceReceiver(message);
    if (message.is_read && message.is_received) channel.under_way.erase(it);
    return is_done;
  }

 private:
  static constexpr uint64_t kLongestDelay = 4;

  Channel& ChannelOf(RankId from, RankId to) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return channels_[static_cast<size_t>(from * size_ + to)];
  }

  static void Read(Message& message) {
    message.content.assign(static_cast<const char*>(message.source), message.sent_bytes);
    message.is_read = true;
  }

  static bool AdvanceSender(Message& message) {
    if (message.is_read) return true;
    if (!message.is_wanted || message.sender_delay-- > 0) return false;
    Read(message);
    return true;
  }

  static bool AdvanceReceiver(Message& message) {
    if (message.is_received) return true;
    if (!message.is_read || message.receiver_delay-- > 0) return false;
    if (!message.content.empty()) std::memcpy(message.destination, message.content.data(), message.content.size());
    message.is_received = true;
    return true;
  }

  const int size_;
  Mutex mu_;
  std::mt19937_64 random_ ABSL_GUARDED_BY(mu_);
  std::vector<Channel> channels_ ABSL_GUARDED_BY(mu_);  // [from * size + to]
};

class FakeMessages : public PointToPoint {
 public:
  FakeMessages(std::shared_ptr<Post> post, RankId rank) : post_(std::move(post)), rank_(rank) {}

  RankId rank() const override { return rank_; }
  int size() const override { return post_->size(); }

  absl::StatusOr<Request> Send(const void* data, size_t bytes, RankId to) override {
    RONDA_CHECK(0 <= to && to < size() && to != rank_);
    return Begin({.side = Side::kSender, .peer = to, .number = post_->Send(rank_, to, data, bytes)});
  }

  absl::StatusOr<Request> Receive(void* data, size_t bytes, RankId from) override {
    RONDA_CHECK(0 <= from && from < size() && from != rank_);
    return Begin({.side = Side::kReceiver, .peer = from, .number = post_->Receive(from, rank_, data, bytes)});
  }

  absl::StatusOr<bool> Test(absl::Span<Request> requests) override {
    RONDA_RETURN_IF_ERROR(AdvanceAll());
    for (const Request& request : requests) {
      RONDA_CHECK(under_way_.contains(request.words[0]));
      if (!under_way_[request.words[0]].is_done) return false;
    }
    for (const Request& request : requests) under_way_.erase(request.words[0]);
    return true;
  }

 private:
  struct Transfer {
    Side side;
    RankId peer;
    uint64_t number;
    bool is_done = false;
  };

  Request Begin(const Transfer& transfer) {
    under_way_[next_] = transfer;
    return {.words = {next_++, 0}};
  }

  // As with an MPI, any call may move any of the caller's transfers.
  absl::Status AdvanceAll() {
    for (auto& [id, transfer] : under_way_) {
      if (transfer.is_done) continue;
      const bool sends = transfer.side == Side::kSender;
      RONDA_ASSIGN_OR_RETURN(
          transfer.is_done,
          post_->Advance(sends ? rank_ : transfer.peer, sends ? transfer.peer : rank_, transfer.number, transfer.side));
    }
    return absl::OkStatus();
  }

  const std::shared_ptr<Post> post_;
  const RankId rank_;
  uint64_t next_ = 0;
  std::map<uint64_t, Transfer> under_way_;  // until Test has said that they are over
};

}  // namespace

std::vector<std::unique_ptr<PointToPoint>> ConnectFakeMessages(int size, uint64_t seed) {
  const auto post = std::make_shared<Post>(size, seed);
  std::vector<std::unique_ptr<PointToPoint>> ends;
  for (RankId rank = 0; rank < size; ++rank) ends.push_back(std::make_unique<FakeMessages>(post, rank));
  return ends;
}

}  // namespace ronda::testing
