// SPDX-License-Identifier: Apache-2.0

// The C ABI on top of the runtime: prepared groups, the allreduces that a program repeats in every step.

#pragma GCC visibility push(default)
#include "client/ronda.h"
#pragma GCC visibility pop

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "client/arguments.h"
#include "client/c_api_support.h"
#include "client/prepared_group.h"
#include "client/session.h"
#include "runtime/engine/handle.h"
#include "runtime/engine/submission.h"

// The object behind the caller's group pointer.
struct ronda_prepared_group {
  std::unique_ptr<ronda::PreparedGroup> group;
};

namespace ronda {
namespace {

Outcome Prepare(const ronda_allreduce_args* args, size_t count, const char* name, ronda_group* group) {
  if (group == nullptr) return NullArgument("ronda_prepare_group", "group");
  const std::shared_ptr<Session> session = CurrentSession();
  if (session == nullptr) return NotInitialized();
  std::vector<Submission> members;
  absl::Status status = ToMembers(args, count, name, session->caller(), &members);
  if (!status.ok()) return Failure(status, Answer::kSubmission);
  members.resize(count);
  auto prepared = PreparedGroup::Create(session, name, std::move(members));
  if (!prepared.ok()) return Failure(prepared.status(), Answer::kSubmission);
  *group = new ronda_prepared_group{.group = *std::move(prepared)};
  return {};
}

// Runs `body` on a group, or returns an error if `group` is null.
template <typename Body>
ronda_status CallWithGroup(const char* function, ronda_group group, const Body& body) noexcept {
  return Call([&]() -> Outcome {
    if (group == nullptr) {
      return {RONDA_ERROR_INVALID_ARGUMENT,
              absl::StrCat(function, ": group is NULL: pass one from ronda_prepare_group()")};
    }
    return body(*group->group);
  });
}

// Calls `answer` on a group, and writes the result to `to`. Error messages refer to `to` as `argument`.
template <typename T, typename AnswerFn>
ronda_status AskGroup(const char* function, ronda_group group, const char* argument, T* to,
                      const AnswerFn& answer) noexcept {
  return CallWithGroup(function, group, [&](const PreparedGroup& prepared) -> Outcome {
    if (to == nullptr) return NullArgument(function, argument);
    *to = answer(prepared);
    return {};
  });
}

// Moves the group's handles into the handle table, and writes their numbers. First reserves room in the table, so that
// no handle is lost.
Outcome Detach(PreparedGroup& prepared, ronda_handle* numbers) {
  size_t room = prepared.size();
  globals().handles.Reserve(room);
  const absl::Cleanup unreserve = [&room] {
    if (room > 0) globals().handles.Unreserve(room);
  };
  std::vector<std::shared_ptr<Handle>> handles;
  Outcome outcome = prepared.Detach(&handles);
  for (size_t i = 0; i < handles.size(); ++i) {
    numbers[i] = 0;
    if (handles[i] == nullptr) continue;
    --room;
    numbers[i] = globals().handles.Add(Operation(handles[i], OpType::kAllreduce));
  }
  return outcome;
}

Outcome Combine(PreparedGroup& prepared, const size_t* members, size_t count, const char* name) {
  constexpr char kFunction[] = "ronda_group_combine";
  if (members == nullptr && count > 0) return NullArgument(kFunction, "members");
  absl::Status status = CheckName(kFunction, "the tensor group's name", name);
  if (!status.ok()) return Failure(status, Answer::kSubmission);
  return prepared.Combine(absl::MakeConstSpan(members, count), name);
}

// Runs `wait` on a group, with a deadline. Sets `done` to whether the step has ended.
template <typename WaitFn>
ronda_status WaitFor(const char* function, ronda_group group, double timeout_s, int* done,
                     const WaitFn& wait) noexcept {
  return CallWithGroup(function, group, [&](PreparedGroup& prepared) -> Outcome {
    if (done == nullptr) return NullArgument(function, "done");
    const absl::StatusOr<absl::Duration> deadline = DeadlineOf(function, timeout_s);
    if (!deadline.ok()) return Failure(deadline.status(), Answer::kSubmission);
    bool ended = false;
    Outcome outcome = wait(prepared, *deadline, &ended);
    *done = ended ? 1 : 0;
    return outcome;
  });
}

}  // namespace
}  // namespace ronda

ronda_status ronda_prepare_group(const ronda_allreduce_args* args, size_t count, const char* name, ronda_group* group) {
  return ronda::Call([&] { return ronda::Prepare(args, count, name, group); });
}

ronda_status ronda_group_learn_order(ronda_group group) {
  return ronda::CallWithGroup("ronda_group_learn_order", group,
                              [](ronda::PreparedGroup& prepared) { return prepared.LearnOrder(); });
}

ronda_status ronda_group_combine(ronda_group group, const size_t* members, size_t count, const char* name) {
  return ronda::CallWithGroup("ronda_group_combine", group, [&](ronda::PreparedGroup& prepared) {
    return ronda::Combine(prepared, members, count, name);
  });
}

ronda_status ronda_group_is_current(ronda_group group, int* current) {
  return ronda::AskGroup("ronda_group_is_current", group, "current", current, [](const ronda::PreparedGroup& prepared) {
    return prepared.BelongsTo(ronda::CurrentSession()) ? 1 : 0;
  });
}

ronda_status ronda_group_ready(ronda_group group, size_t index) {
  return ronda::CallWithGroup("ronda_group_ready", group,
                              [index](ronda::PreparedGroup& prepared) { return prepared.Announce(index); });
}

ronda_status ronda_group_ready_at(ronda_group group, size_t index, void* data) {
  return ronda::CallWithGroup("ronda_group_ready_at", group, [index, data](ronda::PreparedGroup& prepared) {
    return prepared.AnnounceAt(index, data, std::nullopt);
  });
}

ronda_status ronda_group_ready_on_stream(ronda_group group, size_t index, void* data, void* stream) {
  return ronda::CallWithGroup(
      "ronda_group_ready_on_stream", group,
      [index, data, stream](ronda::PreparedGroup& prepared) { return prepared.AnnounceAt(index, data, stream); });
}

ronda_status ronda_group_wait(ronda_group group) {
  return ronda::CallWithGroup("ronda_group_wait", group,
                              [](ronda::PreparedGroup& prepared) { return prepared.Wait(); });
}

ronda_status ronda_group_wait_for(ronda_group group, double timeout_s, int* done) {
  return ronda::WaitFor("ronda_group_wait_for", group, timeout_s, done,
                        [](ronda::PreparedGroup& prepared, absl::Duration deadline, bool* ended) {
                          return prepared.WaitUntil(deadline, ended);
                        });
}

ronda_status ronda_group_wait_on_stream(ronda_group group, void* stream) {
  return ronda::CallWithGroup("ronda_group_wait_on_stream", group,
                              [stream](ronda::PreparedGroup& prepared) { return prepared.OrderBefore(stream); });
}

ronda_status ronda_group_wait_on_own_streams(ronda_group group) {
  return ronda::CallWithGroup("ronda_group_wait_on_own_streams", group,
                              [](ronda::PreparedGroup& prepared) { return prepared.OrderBeforeOwnStreams(); });
}

ronda_status ronda_group_finish(ronda_group group) {
  return ronda::CallWithGroup("ronda_group_finish", group,
                              [](const ronda::PreparedGroup& prepared) { return prepared.Finish(); });
}

ronda_status ronda_group_wait_on_stream_for(ronda_group group, void* stream, double timeout_s, int* done) {
  return ronda::WaitFor("ronda_group_wait_on_stream_for", group, timeout_s, done,
                        [stream](ronda::PreparedGroup& prepared, absl::Duration deadline, bool* ended) {
                          return prepared.OrderBeforeUntil(stream, deadline, ended);
                        });
}

ronda_status ronda_group_detach(ronda_group group, ronda_handle* handles) {
  constexpr char kFunction[] = "ronda_group_detach";
  return ronda::CallWithGroup(kFunction, group, [&](ronda::PreparedGroup& prepared) -> ronda::Outcome {
    if (handles == nullptr) return ronda::NullArgument(kFunction, "handles");
    return ronda::Detach(prepared, handles);
  });
}

ronda_status ronda_group_found_inf(ronda_group group, int* found) {
  return ronda::AskGroup("ronda_group_found_inf", group, "found", found, [](const ronda::PreparedGroup& prepared) {
    return prepared.overflowed().has_value() ? 1 : 0;
  });
}

ronda_status ronda_group_overflowed(ronda_group group, int64_t* index) {
  return ronda::AskGroup("ronda_group_overflowed", group, "index", index,
                         [](const ronda::PreparedGroup& prepared) -> int64_t {
                           const std::optional<size_t> member = prepared.overflowed();
                           return member.has_value() ? static_cast<int64_t>(*member) : -1;
                         });
}

ronda_status ronda_group_release(ronda_group group) {
  return ronda::CallWithGroup("ronda_group_release", group, [group](ronda::PreparedGroup&) -> ronda::Outcome {
    delete group;
    return {};
  });
}
