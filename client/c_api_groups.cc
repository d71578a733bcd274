// The C ABI on top of the runtime: prepared groups.

#pragma GCC visibility push(default)
#include "client/ronda.h"
#pragma GCC visibility pop

#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "client/arguments.h"
#include "client/c_api_support.h"
#include "client/prepared_group.h"

// The caller's pointer to a group.
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

// Runs `body` on a group.
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

// Runs `wait`, which has a deadline, on a group, and writes whether it has come to its end.
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

ronda_status ronda_group_ready(ronda_group group, size_t index) {
  return ronda::CallWithGroup("ronda_group_ready", group,
                              [index](ronda::PreparedGroup& prepared) { return prepared.Announce(index); });
}

ronda_status ronda_group_ready_at(ronda_group group, size_t index, void* data) {
  return ronda::CallWithGroup("ronda_group_ready_at", group, [index, data](ronda::PreparedGroup& prepared) {
    return prepared.AnnounceAt(index, data);
  });
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

ronda_status ronda_group_wait_on_stream_for(ronda_group group, void* stream, double timeout_s, int* done) {
  return ronda::WaitFor("ronda_group_wait_on_stream_for", group, timeout_s, done,
                        [stream](ronda::PreparedGroup& prepared, absl::Duration deadline, bool* ended) {
                          return prepared.OrderBeforeUntil(stream, deadline, ended);
                        });
}

ronda_status ronda_group_found_inf(ronda_group group, int* found) {
  constexpr char kFunction[] = "ronda_group_found_inf";
  return ronda::CallWithGroup(kFunction, group, [&](const ronda::PreparedGroup& prepared) -> ronda::Outcome {
    if (found == nullptr) return ronda::NullArgument(kFunction, "found");
    *found = prepared.found_overflow() ? 1 : 0;
    return {};
  });
}

ronda_status ronda_group_release(ronda_group group) {
  return ronda::CallWithGroup("ronda_group_release", group, [group](ronda::PreparedGroup&) -> ronda::Outcome {
    delete group;
    return {};
  });
}
