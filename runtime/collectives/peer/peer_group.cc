// SPDX-License-Identifier: Apache-2.0

#include "runtime/collectives/peer/peer_group.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "runtime/base/clock.h"
#include "runtime/base/logging.h"
#include "runtime/base/status_macros.h"
#include "runtime/base/unique_fd.h"
#include "runtime/collectives/peer/file_exchange.h"

namespace ronda {
namespace {

// How long a wait for another member's thread yields the core before it sleeps between checks.
constexpr absl::Duration kYield = absl::Microseconds(100);
constexpr absl::Duration kPause = absl::Microseconds(20);
constexpr absl::Duration kCheckPeriod = absl::Milliseconds(1);

// Abort() ends the waits for all meetings up to this far ahead.
constexpr uint32_t kFarAhead = uint32_t{1} << 30;

constexpr size_t RoundUp(size_t n, size_t multiple) { return (n + multiple - 1) / multiple * multiple; }

}  // namespace

// What a rank tells the others when a group is connected. A plain struct, because its bytes are sent.
struct PeerGroup::Invitation {
  char can = 0;
  char reason[383] = {};
  FileExchange::Address address;
  int64_t process = 0;
  int64_t device = 0;  // its number within the process
};

// The member's own pad and socket. The first member also has the file of the words.
struct PeerGroup::Own {
  FileExchange exchange;
  std::vector<UniqueFd> files;  // the pad and, on the first member, the words
};

PeerGroup::PeerGroup(const Options& options, std::vector<RankId> ranks, int self)
    : options_(options), ranks_(std::move(ranks)), self_(self), meets_on_host_(options.meets_on_host) {}

absl::StatusOr<std::unique_ptr<PeerGroup>> PeerGroup::Connect(const Options& options, const CallInfo& info) {
  const Members members(info, options.rank, options.size);
  std::vector<RankId> ranks;
  for (int i = 0; i < members.size(); ++i) ranks.push_back(members[i]);
  std::unique_ptr<PeerGroup> group;
  if (members.IncludeSelf()) group.reset(new PeerGroup(options, ranks, members.self()));

  absl::Status status;
  std::optional<Own> own;
  Invitation invitation;
  if (group != nullptr) {
    absl::StatusOr<Own> prepared = group->Prepare(&invitation);
    status = prepared.status();
    if (prepared.ok()) own = *std::move(prepared);
  }
  std::vector<Invitation> all;
  RONDA_RETURN_IF_ERROR(AgreeWithAll(*options.host, info, members, status, &invitation, &all));
  if (group != nullptr) status = group->Map(*own, all, info.limits);
  RONDA_RETURN_IF_ERROR(AgreeWithAll(*options.host, info, members, status, &invitation, &all));
  return group;
}

absl::Status PeerGroup::AgreeWithAll(Communicator& host, const CallInfo& info, const Members& members,
                                     const absl::Status& own, Invitation* invitation, std::vector<Invitation>* all) {
  invitation->can = own.ok() ? 1 : 0;
  own.message().copy(invitation->reason, sizeof(invitation->reason) - 1);
  const std::vector<size_t> bytes_per_rank(static_cast<size_t>(members.size()), sizeof(Invitation));
  AllgatherCall call = {.info = info, .bytes_per_rank = bytes_per_rank};
  call.info.ballot = nullptr;
  if (!members.IncludeSelf()) return host.Allgather(call);
  all->assign(bytes_per_rank.size(), {});
  call.input = invitation;
  call.output = all->data();
  RONDA_RETURN_IF_ERROR(host.Allgather(call));
  for (int i = 0; i < members.size(); ++i) {
    const Invitation& theirs = (*all)[static_cast<size_t>(i)];
    if (theirs.can != 0) continue;
    return absl::FailedPreconditionError(
        absl::StrCat("rank ", members[i], " cannot share the memory of its GPU with other ranks: ",
                     std::string(theirs.reason, strnlen(theirs.reason, sizeof(theirs.reason)))));
  }
  return absl::OkStatus();
}

bool PeerGroup::ShareQueues(const std::vector<Invitation>& all) {
  std::set<std::pair<int64_t, int64_t>> devices;
  return !std::all_of(all.begin(), all.end(),
                      [&](const Invitation& member) { return devices.emplace(member.process, member.device).second; });
}

absl::StatusOr<PeerGroup::Own> PeerGroup::Prepare(Invitation* invitation) {
  if (size() > kMostMembers) {
    return absl::FailedPreconditionError(
        absl::StrCat("the group has ", size(), " ranks, and at most ", kMostMembers, " are possible"));
  }
  Device& device = *options_.device;
  RONDA_ASSIGN_OR_RETURN(const size_t unit, SharingUnit(device));
  pad_bytes_ = RoundUp(2 * options_.slot_bytes, unit);
  RONDA_ASSIGN_OR_RETURN(FileExchange exchange, FileExchange::Open());
  Own own = {.exchange = std::move(exchange), .files = {}};
  RONDA_ASSIGN_OR_RETURN(own.files.emplace_back(), AllocateShared(device, pad_bytes_, "the memory that ranks share"));
  if (self_ == 0) {
    RONDA_ASSIGN_OR_RETURN(own.files.emplace_back(), PeerWords::CreateFile(size()));
  }
  invitation->address = own.exchange.address();
  invitation->process = getpid();
  invitation->device = device.ordinal();
  return own;
}

absl::Status PeerGroup::Map(const Own& own, const std::vector<Invitation>& all, const WaitLimits& limits) {
  std::vector<FileExchange::Address> addresses;
  for (const Invitation& theirs : all) addresses.push_back(theirs.address);
  meets_on_host_ = meets_on_host_ || ShareQueues(all);
  RONDA_ASSIGN_OR_RETURN(std::vector<std::vector<UniqueFd>> files,
                         own.exchange.Exchange(own.files, addresses, ranks_, self_,
                                               {.deadline = limits.deadline, .job_failure = options_.job_failure}));
  if (files[0].size() != 2) return absl::InternalError("the first rank of the group has sent no file for the words");
  RONDA_ASSIGN_OR_RETURN(words_, PeerWords::Map(options_.device.get(), files[0][1], size(), self_));
  std::vector<UniqueFd> pads;
  for (std::vector<UniqueFd>& of_member : files) pads.push_back(std::move(of_member[0]));
  RONDA_ASSIGN_OR_RETURN(pads_, SharedMapping::Map(options_.device.get(), pads, pad_bytes_));
  // For the first group, which has all ranks, enqueues waits that are satisfied at once. A device whose streams cannot
  // operate on words rejects them now, before the first call.
  if (size() < options_.size) return absl::OkStatus();
  words_->AddWaits(0, &ops_);
  return RunOps(ops_);
}

PeerGroup::Slot PeerGroup::NextSlot() {
  next_slot_ = 1 - next_slot_;
  return {.data = pads_->data() + next_slot_ * options_.slot_bytes, .stride = pad_bytes_};
}

absl::Status PeerGroup::Meet(const CallInfo& info) {
  if (is_aborted_.load()) return absl::CancelledError("the work on the device has been ended");
  if (size() == 1) return absl::OkStatus();
  const uint32_t meeting = meetings_.fetch_add(1) + 1;
  ops_.clear();
  words_->AddArrival(meeting, &ops_);
  if (meets_on_host_) {
    RONDA_RETURN_IF_ERROR(RunOps(ops_));
    words_->RecordLaunch(meeting);
    RONDA_RETURN_IF_ERROR(AwaitLaunches(info, meeting));
    ops_.clear();
  }
  words_->AddWaits(meeting, &ops_);
  return RunOps(ops_);
}

absl::Status PeerGroup::EndReads() {
  if (size() == 1) return absl::OkStatus();
  ops_.clear();
  words_->AddFailureCheck(&ops_);
  return RunOps(ops_);
}

absl::Status PeerGroup::RunOps(const std::vector<ronda_cuda_word_op>& ops) {
  return options_.device->Call("meeting other ranks", [&](const ronda_cuda_plugin& cuda) {
    return cuda.run_word_ops(ops.data(), static_cast<int>(ops.size()), options_.stream);
  });
}

absl::Status PeerGroup::AwaitLaunches(const CallInfo& info, uint32_t meeting) {
  for (int member = 0; member < size(); ++member) {
    if (member != self_) RONDA_RETURN_IF_ERROR(AwaitLaunch(info, member, meeting));
  }
  return absl::OkStatus();
}

absl::Status PeerGroup::AwaitLaunch(const CallInfo& info, int member, uint32_t meeting) {
  const absl::Duration begin = MonotonicTime();
  absl::Duration checked = absl::ZeroDuration();
  while (!words_->HasLaunched(member, meeting)) {
    const absl::Duration waited = MonotonicTime() - begin;
    if (waited < kYield) {
      std::this_thread::yield();
      continue;
    }
    absl::SleepFor(kPause);
    if (waited - checked < kCheckPeriod) continue;
    RONDA_RETURN_IF_ERROR(options_.job_failure());
    if (is_aborted_.load()) return absl::CancelledError("the work on the device has been ended");
    const auto text = [&](absl::Duration limit) {
      return absl::StrCat("waited ", absl::FormatDuration(limit), " for rank ", ranks_[static_cast<size_t>(member)],
                          " to give its GPU ", Name(info.op), " '", info.label, "'");
    };
    if (waited >= info.limits.deadline) return absl::DeadlineExceededError(text(info.limits.deadline));
    if (waited >= info.limits.warning && checked < info.limits.warning) {
      Log(LogLevel::kWarning, options_.rank, absl::StrCat("has ", text(info.limits.warning)));
    }
    checked = waited;
  }
  return absl::OkStatus();
}

void PeerGroup::Abort() {
  if (!is_aborted_.exchange(true)) words_->ReportFailure();
}

void PeerGroup::EndWaits() { words_->EndWaits(meetings_.load() + kFarAhead); }

}  // namespace ronda
