// SPDX-License-Identifier: Apache-2.0

#include "runtime/elastic/membership_message.h"

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <tuple>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "runtime/base/status_macros.h"

namespace ronda {
namespace {

constexpr int64_t kMaxEpoch = 999'999'999;
constexpr int64_t kMaxStep = int64_t{1} << 62;
constexpr int kMaxSize = 1 << 20;
constexpr size_t kMaxQuoted = 200;
constexpr size_t kMaxReason = kMaxMembershipMessage - 256;

// Reads the space-separated fields of a message in order. Finish() returns the first error.
class WordReader {
 public:
  explicit WordReader(absl::string_view text) : text_(text.substr(0, kMaxQuoted)), rest_(text) {
    if (text.size() > kMaxMembershipMessage) Refuse("it is too long");
  }

  absl::string_view Next() {
    const size_t end = std::min(rest_.find(' '), rest_.size());
    const absl::string_view word = rest_.substr(0, end);
    rest_.remove_prefix(std::min(end + 1, rest_.size()));
    return word;
  }

  template <typename Integer>
  Integer Number(absl::string_view what, int64_t lowest, int64_t highest) {
    const absl::string_view word = Next();
    int64_t number = 0;
    if (!absl::SimpleAtoi(word, &number) || number < lowest || number > highest) {
      Refuse(absl::StrCat(what, " \"", absl::CHexEscape(word), "\" is no number from ", lowest, " to ", highest));
      return Integer{};
    }
    return static_cast<Integer>(number);
  }

  std::string Rest() { return std::string(std::exchange(rest_, {})); }

  void Refuse(absl::string_view why) {
    if (status_.ok()) {
      status_ = absl::InvalidArgumentError(absl::StrCat("membership message \"", absl::CHexEscape(text_), "\": ", why));
    }
  }

  // Checks that no fields are left. Returns the first error in the message.
  absl::Status Finish() {
    if (!rest_.empty()) Refuse("it is too long");
    return status_;
  }

 private:
  const absl::string_view text_;
  absl::string_view rest_;
  absl::Status status_;
};

// Returns `reason` on one line, truncated to kMaxReason characters.
std::string ReasonOf(absl::string_view reason) {
  return absl::StrReplaceAll(reason.substr(0, kMaxReason), {{"\n", " "}, {"\r", " "}});
}

JoinRequest ParseJoin(WordReader* words) {
  JoinRequest join;
  join.last_epoch = words->Number<int64_t>("epoch", -1, kMaxEpoch);
  join.step = words->Number<int64_t>("step", -1, kMaxStep);
  join.reason = words->Rest();
  return join;
}

EpochPlace ParsePlace(WordReader* words) {
  EpochPlace place;
  place.epoch = words->Number<int64_t>("epoch", 0, kMaxEpoch);
  Topology& topology = place.topology;
  for (const auto& [name, index, size] : {std::tuple{"rank", &topology.rank, &topology.size},
                                          std::tuple{"local rank", &topology.local_rank, &topology.local_size},
                                          std::tuple{"cross rank", &topology.cross_rank, &topology.cross_size}}) {
    *index = words->Number<int>(name, 0, kMaxSize - 1);
    *size = words->Number<int>(absl::StrCat("number of ", name, "s"), *index + 1, kMaxSize);
  }
  place.master_port = words->Number<int>("port", 0, 65535);
  place.master_address = words->Rest();
  if (place.master_address.empty() != (place.master_port == 0)) words->Refuse("an address needs a port");
  return place;
}

}  // namespace

bool EpochPlace::operator==(const EpochPlace& other) const { return Encode(*this) == Encode(other); }

std::string Encode(const MemberMessage& message) {
  if (const auto* join = std::get_if<JoinRequest>(&message)) {
    return absl::StrCat("join ", join->last_epoch, " ", join->step, " ", ReasonOf(join->reason));
  }
  if (const auto* met = std::get_if<EpochMet>(&message)) return absl::StrCat("met ", met->epoch);
  return "leave";
}

std::string Encode(const LauncherMessage& message) {
  if (const auto* place = std::get_if<EpochPlace>(&message)) {
    const Topology& at = place->topology;
    return absl::StrCat("place ", place->epoch, " ", at.rank, " ", at.size, " ", at.local_rank, " ", at.local_size, " ",
                        at.cross_rank, " ", at.cross_size, " ", place->master_port, " ", place->master_address);
  }
  if (const auto* end = std::get_if<EndNotice>(&message)) return absl::StrCat("end ", ReasonOf(end->reason));
  return "change";
}

absl::StatusOr<MemberMessage> DecodeMemberMessage(absl::string_view text) {
  WordReader words(text);
  MemberMessage message;
  const absl::string_view kind = words.Next();
  if (kind == "join") {
    message = ParseJoin(&words);
  } else if (kind == "met") {
    message = EpochMet{.epoch = words.Number<int64_t>("epoch", 0, kMaxEpoch)};
  } else if (kind == "leave") {
    message = LeaveRequest{};
  } else {
    words.Refuse("its kind is unknown; rondarun and libronda must be of the same version");
  }
  RONDA_RETURN_IF_ERROR(words.Finish());
  return message;
}

absl::StatusOr<LauncherMessage> DecodeLauncherMessage(absl::string_view text) {
  WordReader words(text);
  LauncherMessage message;
  const absl::string_view kind = words.Next();
  if (kind == "place") {
    message = ParsePlace(&words);
  } else if (kind == "change") {
    message = ChangeNotice{};
  } else if (kind == "end") {
    message = EndNotice{.reason = words.Rest()};
  } else {
    words.Refuse("its kind is unknown; rondarun and libronda must be of the same version");
  }
  RONDA_RETURN_IF_ERROR(words.Finish());
  return message;
}

absl::Status SendMembershipMessage(int fd, absl::string_view text) {
  if (send(fd, text.data(), text.size(), MSG_DONTWAIT | MSG_NOSIGNAL) == static_cast<ssize_t>(text.size())) {
    return absl::OkStatus();
  }
  const int error = errno;
  if (error == EAGAIN) return absl::UnavailableError("the other end of the membership's socket does not read");
  return absl::UnavailableError(
      absl::StrCat("the other end of the membership's socket is gone: ", absl::ErrnoToStatus(error, "send").message()));
}

absl::StatusOr<std::string> ReceiveMembershipMessage(int fd) {
  std::array<char, kMaxMembershipMessage + 1> buffer;
  const ssize_t count = recv(fd, buffer.data(), buffer.size(), MSG_DONTWAIT);
  const int error = errno;
  if (count < 0 && (error == EAGAIN || error == EINTR)) return std::string();
  if (count < 0) {
    return absl::UnavailableError(
        absl::StrCat("the membership's socket cannot be read: ", absl::ErrnoToStatus(error, "recv").message()));
  }
  if (count == 0) return absl::UnavailableError("the other end of the membership's socket is gone");
  if (static_cast<size_t>(count) > kMaxMembershipMessage) {
    return absl::InvalidArgumentError(
        absl::StrCat("a membership message has more than ", kMaxMembershipMessage, " bytes"));
  }
  return std::string(buffer.data(), static_cast<size_t>(count));
}

}  // namespace ronda
