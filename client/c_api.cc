// SPDX-License-Identifier: Apache-2.0

// The C ABI on top of the runtime: the job and its process sets.

// The code is compiled with hidden visibility, so the library exports only the functions declared in ronda.h.
#pragma GCC visibility push(default)
#include "client/ronda.h"
#pragma GCC visibility pop

#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "client/arguments.h"
#include "client/c_api_support.h"
#include "client/elastic.h"
#include "client/job_options.h"
#include "client/stop.h"
#include "client/thread_limits.h"
#include "runtime/backends/device_backends.h"
#include "runtime/backends/job.h"
#include "runtime/backends/read_config.h"
#include "runtime/base/config.h"
#include "runtime/base/environment.h"
#include "runtime/base/group.h"
#include "runtime/base/logging.h"
#include "runtime/base/peer.h"
#include "runtime/base/status_macros.h"
#include "runtime/base/version.h"
#include "runtime/engine/run_threads.h"
#include "runtime/engine/runtime.h"
#include "runtime/rendezvous/launchers.h"

namespace ronda {
namespace {

struct JobOptions {
  Config config;
  ClientOptions client;

  WaitLimits limits() const {
    return {.warning = client.tunables.stall_warning, .deadline = client.tunables.stall_deadline};
  }
};

// Warns about environment variables that have no effect because their names are misspelt or their values are obsolete.
// The ranks of a job usually have the same environment, so only rank 0 warns. Later jobs of this process do not repeat
// the warning.
void WarnOfVariables(const JobEnvironment& job, const EnvironmentReader& environment) {
  if (job.rank != 0) return;
  std::call_once(globals().unknown_variables_told, [&] {
    for (const std::string& message : DescribeUnknownVariables(ProcessVariables())) {
      Log(LogLevel::kWarning, job.rank, message);
    }
    if (environment("RONDA_CONTROL") != "grpc") return;
    Log(LogLevel::kWarning, job.rank,
        "RONDA_CONTROL=\"grpc\": control messages go over TCP now; unset RONDA_CONTROL, or set it to tcp");
  });
}

absl::StatusOr<JobOptions> ReadOptions(const ronda_options* options, EnvironmentReader environment) {
  RONDA_ASSIGN_OR_RETURN(const JobVariables variables, OverrideEnvironment(options, std::move(environment)));
  absl::StatusOr<Config> read = ReadConfig(variables.reader);
  if (!read.ok()) return absl::Status(read.status().code(), absl::StrCat(read.status().message(), variables.origin));
  Config config = *std::move(read);
  ClientOptions client{.tunables = config.tunables};
  RONDA_RETURN_IF_ERROR(ApplyOptions(options, &client));
  SetLogLevel(config.log_level);
  WarnOfVariables(config.job, variables.reader);
  config.tunables = client.tunables;
  return JobOptions{.config = std::move(config), .client = std::move(client)};
}

// Adds the process sets that exist from the start.
absl::Status AddProcessSets(const std::vector<std::vector<RankId>>& sets, Session* session) {
  for (const std::vector<RankId>& ranks : sets) {
    RONDA_ASSIGN_OR_RETURN(const std::shared_ptr<Handle> handle,
                           session->SubmitNumbered(AddProcessSetSubmission(ranks)));
    RONDA_RETURN_IF_ERROR(handle->Wait());
  }
  return absl::OkStatus();
}

// Starts the timeline that the environment requests. If a rank cannot start its timeline, the job fails, so that all
// ranks get the error.
absl::Status StartTimelineIfAsked(const TimelineSettings& timeline, Runtime& runtime) {
  if (timeline.path.empty()) return absl::OkStatus();
  absl::Status started = runtime.StartTimeline(timeline.path);
  if (started.ok()) return started;
  absl::Status status(started.code(), absl::StrCat("RONDA_TIMELINE: ", started.message()));
  runtime.Abandon(status);
  return status;
}

// Ends the process after `grace`, unless the program exits by itself before. Until then, the program's calls return the
// job's failure. Ends the process without running exit() handlers, because a handler might block on the GPU.
void EndProcessAfter(absl::Duration grace, RankId rank, const std::string& why) {
  if (grace == absl::InfiniteDuration()) return;
  const auto end = [grace, rank, why] {
    absl::SleepFor(grace);
    Log(LogLevel::kError, rank,
        absl::StrCat("this process ends ", absl::FormatDuration(grace), " after the failure of its job: ", why,
                     " (RONDA_FAILURE_GRACE can be longer, or continue)"));
    _exit(EXIT_FAILURE);
  };
  try {
    std::thread(end).detach();
  } catch (const std::system_error&) {
    end();
  }
}

// Returns the callback for Runtime::Options. In an elastic job the callback is null, because a member must survive a
// failure, and because no stream waits for an operation that can fail (see WaitsForDevice()).
std::function<void(const std::string& why)> WhenAStreamIsHeld(const Config& config) {
  const std::optional<absl::Duration> grace = config.devices.failure_grace;
  if (!grace.has_value() || globals().member.is_known_member()) return nullptr;
  return [grace = *grace, rank = config.job.rank](const std::string& why) { EndProcessAfter(grace, rank, why); };
}

// Returns whether the process ends after a call of WhenAStreamIsHeld()'s function.
bool EndsWhenHeld(const Config& config) {
  return WhenAStreamIsHeld(config) != nullptr && *config.devices.failure_grace != absl::InfiniteDuration();
}

// How long a member of an elastic job waits for its GPU to finish the work of a step. A member that abandons its GPU
// loses the state on the GPU, and can no longer use the GPU. A member that takes longer than the other members is
// killed by the launcher.
constexpr absl::Duration kMemberDeviceTimeout = absl::Seconds(20);

// Returns this process's number on its host, which the launcher assigned at the start and which a member of an elastic
// job keeps in all epochs.
std::optional<int> PlaceOnHost() {
  const EnvironmentReader environment = ProcessEnvironment();
  const absl::StatusOr<Place> place = ReadPlace(EnvironmentVariables(environment));
  return place.ok() ? place->job.local_rank : std::nullopt;
}

absl::StatusOr<std::unique_ptr<Session>> JoinJob(const ronda_options* options, EnvironmentReader environment) {
  RONDA_ASSIGN_OR_RETURN(const JobOptions job_options, ReadOptions(options, std::move(environment)));
  RONDA_RETURN_IF_ERROR(CheckThreads());
  RONDA_RETURN_IF_ERROR(globals().runtime.claim().Acquire(job_options.config.job));
  RONDA_ASSIGN_OR_RETURN(ConnectedJob job, ConnectJob(job_options.config));
  const bool is_member = globals().member.is_known_member();
  auto session =
      std::make_unique<Session>(Runtime::Create({.tunables = job_options.client.tunables,
                                                 .timeline_bytes = job_options.config.timeline.most_bytes,
                                                 .device_timeout = is_member ? kMemberDeviceTimeout : Device::kTimeout,
                                                 .stream_is_held = WhenAStreamIsHeld(job_options.config),
                                                 .ends_when_held = EndsWhenHeld(job_options.config),
                                                 .device_hint = is_member ? PlaceOnHost() : std::nullopt},
                                                std::move(job.topology), std::move(job.transport)),
                                job_options.limits());
  RONDA_RETURN_IF_ERROR(StartTimelineIfAsked(job_options.config.timeline, session->runtime()));
  if (absl::Status status = AddProcessSets(job_options.client.process_sets, session.get()); !status.ok()) {
    // Shuts down the runtime properly, as the other ranks do when they get the error. If this rank simply exited, the
    // others would report it as the cause of the failure.
    session->runtime().Shutdown().IgnoreError();
    return status;
  }
  return session;
}

// How a member leaves an epoch of its elastic job and joins the next one.
struct Reform {
  std::string reason;  // the failure that ends the epoch; empty: none
  absl::Duration timeout = absl::InfiniteDuration();
  const ronda_options* options = nullptr;
};

absl::StatusOr<std::unique_ptr<Session>> JoinNextEpoch(const Reform& reform) {
  ElasticMember& member = globals().member;
  RONDA_ASSIGN_OR_RETURN(const EpochPlace place, member.Join(globals().marks.steps(), reform.reason, reform.timeout));
  RONDA_ASSIGN_OR_RETURN(std::unique_ptr<Session> session,
                         JoinJob(reform.options, EnvironmentAt(place, ProcessEnvironment())));
  RONDA_RETURN_IF_ERROR(member.TellMet(place.epoch));
  return session;
}

// Joins the job that the environment describes. A member of an elastic job gets its rank from the launcher, unless the
// program has set the rank.
absl::StatusOr<std::unique_ptr<Session>> JoinFirst(const ronda_options* options) {
  RONDA_ASSIGN_OR_RETURN(const bool is_member, globals().member.IsMember(ProcessEnvironment()));
  if (is_member) {
    RONDA_ASSIGN_OR_RETURN(const bool has_place, HasOwnPlace(options));
    if (!has_place) return JoinNextEpoch({.options = options});
  }
  return JoinJob(options, ProcessEnvironment());
}

absl::StatusOr<Reform> ReadReform(const ronda_elastic_reform_options* from) {
  RONDA_ASSIGN_OR_RETURN(const bool is_member, globals().member.IsMember(ProcessEnvironment()));
  if (!is_member) {
    return absl::InvalidArgumentError(
        "ronda_elastic_reform: this process is no member of an elastic job: start the job with rondarun --min-np N, or "
        "join its next epoch with ronda_init()");
  }
  Reform reform;
  if (from == nullptr) return reform;
  RONDA_ASSIGN_OR_RETURN(const ronda_elastic_reform_options known, CopySized(from, "ronda_elastic_reform_options"));
  RONDA_ASSIGN_OR_RETURN(const bool has_place, HasOwnPlace(known.options));
  if (has_place) {
    return absl::InvalidArgumentError(
        "ronda_elastic_reform: the options give a place in the job, which is the launcher's to give: leave size 0");
  }
  if (!(known.timeout_s >= 0)) {
    return absl::InvalidArgumentError(
        absl::StrCat("ronda_elastic_reform_options.timeout_s is ", known.timeout_s, ": it must not be negative"));
  }
  if (known.reason != nullptr) reform.reason = known.reason;
  if (known.timeout_s > 0) reform.timeout = absl::Seconds(known.timeout_s);
  reform.options = known.options;
  return reform;
}

// Gives SIGTERM its earlier effect if this process is in no job. If the program was not told of a signal that has
// arrived, the signal then ends the process, as it would have without Ronda. But a member of an elastic job that has
// done its part may end as it likes: SIGTERM only asks it to leave the job.
void DisarmStopSignalWithoutJob() {
  if (globals().runtime.Get() != nullptr) return;
  if (StopSignal::Disarm() && !globals().member.is_known_member()) std::raise(SIGTERM);
}

Outcome ReformJob(const ronda_elastic_reform_options* options) {
  absl::StatusOr<Reform> reform = ReadReform(options);
  if (!reform.ok()) return Failure(reform.status(), Answer::kStartup);
  DefaultRuntime& runtime = globals().runtime;
  if (const auto session = runtime.Get(); session != nullptr && !reform->reason.empty()) {
    // Tells the other ranks not to wait for this rank, which takes part in no further operations. A job that has
    // already failed keeps its failure.
    session->runtime().Abandon(absl::UnavailableError(absl::StrCat("this rank leaves the epoch: ", reform->reason)));
  }
  Outcome left = runtime.Stop();
  const bool was_there = left.code != RONDA_ERROR_NOT_INITIALIZED;
  if (was_there && !left.ok() && ronda_status_is_recoverable(left.code) == 0) return left;
  if (was_there && reform->reason.empty()) reform->reason = left.text;
  return runtime.Start([&] { return JoinNextEpoch(*reform); });
}

// Runs the body of a rank that is a thread.
absl::Status RunRank(const JobOptions& options, void (*body)(void* context), void* context, Runtime& runtime) {
  const RankContexts::Scope scope(&globals().ranks, runtime, options.limits());
  RONDA_RETURN_IF_ERROR(StartTimelineIfAsked(options.config.timeline, runtime));
  RONDA_RETURN_IF_ERROR(AddProcessSets(options.client.process_sets, CurrentSession().get()));
  body(context);
  return absl::OkStatus();
}

Outcome RunThreadsOf(const ronda_options* options, int size, void (*body)(void* context), void* context) {
  if (body == nullptr) return {RONDA_ERROR_INVALID_ARGUMENT, "ronda_run_threads: body is NULL: pass a function"};
  const absl::StatusOr<JobOptions> job_options = ReadOptions(options, ProcessEnvironment());
  if (!job_options.ok()) return Failure(job_options.status(), Answer::kStartup);
  const RunThreadsOutcome outcome =
      RunThreads({.size = size,
                  .tunables = job_options->client.tunables,
                  .timeline_bytes = job_options->config.timeline.most_bytes,
                  .devices = DeviceBackends::Create(job_options->config.devices, HostName())},
                 [&](Runtime& runtime) { return RunRank(*job_options, body, context, runtime); });
  DisarmStopSignalWithoutJob();
  // The status has the text of the exception thrown by the body. The exception is not rethrown, because the thread that
  // threw it has ended, and because the caller may be C code.
  return Failure(outcome.status, Answer::kStartup);
}

// Returns the error for a call of `function` by a rank that is a thread, which is not allowed.
Outcome NotInThreads(ronda_status code, absl::string_view function) {
  return {code, absl::StrCat(function,
                             ": this thread acts for a rank of ronda_run_threads(), where the job begins and "
                             "ends with the body: leave the call out")};
}

// A forked child inherits its parent's environment variables, which name the parent's rank. In addition, gRPC, MPI and
// CUDA do not work in a child if the parent has used them.
Outcome InitInForkOfRank() {
  return {RONDA_ERROR_INVALID_ARGUMENT,
          "ronda_init() in a child that a rank has made with fork(): the rank is its parent, and libraries that the "
          "parent uses do not work here; execute a program in the child, or fork before ronda_init()"};
}

// Submits an operation and waits for it without holding the session, so that the session can end meanwhile.
template <typename SubmitFn>
ronda_status SubmitAndWait(const SubmitFn& submit, std::shared_ptr<Handle>* handle) {
  const ronda_status submitted = CallWithSession([&](Session& session) {
    absl::StatusOr<std::shared_ptr<Handle>> result = submit(session);
    if (!result.ok()) return Failure(result.status(), Answer::kSubmission);
    *handle = *std::move(result);
    return Outcome();
  });
  if (submitted != RONDA_OK) return submitted;
  return Call([&] { return Failure((*handle)->Wait(), Answer::kCompletion); });
}

absl::StatusOr<std::shared_ptr<Handle>> SubmitJoin(Session& session, ronda_process_set set,
                                                   const ronda_absent& absent) {
  RONDA_ASSIGN_OR_RETURN(Submission submission, JoinSubmission(set, absent));
  return session.SubmitJoin(submission);
}

// The operation's name gets no number, because the caller distinguishes creations of the same set by their tags.
absl::StatusOr<std::shared_ptr<Handle>> CreateProcessSet(Session& session, const int* ranks, int count,
                                                         const char* tag) {
  session.ForgetRemovedSets();
  RONDA_ASSIGN_OR_RETURN(const Submission submission, CreateProcessSetSubmission(ranks, count, tag));
  absl::StatusOr<std::shared_ptr<Handle>> handle = session.runtime().Submit(submission);
  if (!absl::IsAlreadyExists(handle.status())) return handle;
  return absl::AlreadyExistsError(
      "create_process_set: another thread of this rank creates a set of the same ranks with the same tag: give each "
      "creation a tag of its own");
}

ronda_status Barrier(ronda_process_set set, double timeout_s) {
  std::shared_ptr<Handle> handle;
  return SubmitAndWait(
      [&](Session& session) -> absl::StatusOr<std::shared_ptr<Handle>> {
        RONDA_ASSIGN_OR_RETURN(Submission submission, BarrierSubmission(set, timeout_s, session.caller()));
        return session.SubmitNumbered(std::move(submission));
      },
      &handle);
}

// Returns a field of the topology, or -1 if there is no job.
int FromTopology(int Topology::*member) {
  const std::shared_ptr<Session> session = CurrentSession();
  return session == nullptr ? -1 : session->topology().*member;
}

// Returns the members of a process set, or null if the set does not exist.
std::shared_ptr<const Group> FindProcessSet(ronda_process_set id) {
  const std::shared_ptr<Session> session = CurrentSession();
  if (session == nullptr) return nullptr;
  auto members = session->runtime().ProcessSet(id);
  return members.ok() ? *std::move(members) : nullptr;
}

// The first field of the C struct is its size. It is followed by one field for each row of the table, in table order.
constexpr size_t kStatisticsFields[] = {
#define RONDA_STATISTICS_OFFSET(name) offsetof(ronda_statistics, name),
    RONDA_STATISTICS_TABLE(RONDA_STATISTICS_OFFSET)
#undef RONDA_STATISTICS_OFFSET
};
constexpr bool IsInOrder() {
  size_t expected = sizeof(uint64_t);
  for (const size_t offset : kStatisticsFields) {
    if (offset != expected) return false;
    expected += sizeof(uint64_t);
  }
  return expected == sizeof(ronda_statistics);
}
static_assert(IsInOrder(), "ronda_statistics and RONDA_STATISTICS_TABLE differ");

ronda_statistics ToC(const Statistics& from) {
#define RONDA_STATISTICS_COPY(name) from.name,
  return {sizeof(ronda_statistics), RONDA_STATISTICS_TABLE(RONDA_STATISTICS_COPY)};
#undef RONDA_STATISTICS_COPY
}

static_assert(RONDA_LAUNCHER_NONE == static_cast<int>(Launcher::kNone) &&
              RONDA_LAUNCHER_RONDARUN == static_cast<int>(Launcher::kRondarun) &&
              RONDA_LAUNCHER_TORCHRUN == static_cast<int>(Launcher::kTorchrun) &&
              RONDA_LAUNCHER_PADDLE == static_cast<int>(Launcher::kPaddle) &&
              RONDA_LAUNCHER_OPEN_MPI == static_cast<int>(Launcher::kOpenMpi) &&
              RONDA_LAUNCHER_MPICH == static_cast<int>(Launcher::kMpich) &&
              RONDA_LAUNCHER_SLURM == static_cast<int>(Launcher::kSlurm) &&
              RONDA_LAUNCHER_PMI == static_cast<int>(Launcher::kPmi));

ronda_place ToC(const Place& from) {
  ronda_place place = RONDA_PLACE_INIT;
  if (from.launcher == Launcher::kNone) return place;
  place.launcher = static_cast<ronda_launcher>(from.launcher);
  place.rank = from.job.rank;
  place.size = from.job.size;
  place.local_rank = from.job.local_rank.value_or(-1);
  place.local_size = from.job.local_size.value_or(-1);
  place.cross_rank = from.job.cross_rank.value_or(-1);
  place.cross_size = from.job.cross_size.value_or(-1);
  if (from.store_address.size() > RONDA_MAX_ADDRESS_LENGTH) return place;
  place.store_port = from.store_port;
  std::memcpy(place.store_address, from.store_address.c_str(), from.store_address.size() + 1);
  return place;
}

Outcome WritePlace(ronda_place* place) {
  if (place == nullptr) return NullArgument("ronda_get_place", "place");
  const EnvironmentReader environment = ProcessEnvironment();
  const absl::StatusOr<Place> read = ReadPlace(EnvironmentVariables(environment));
  if (!read.ok()) return Failure(read.status(), Answer::kStartup);
  return WriteSized(ToC(*read), place, "ronda_place");
}

}  // namespace
}  // namespace ronda

using ronda::Topology;

const char* ronda_version(void) { return ronda::kVersion; }

int ronda_status_is_recoverable(ronda_status status) {
  // Not cast to the enum, because a caller built with a newer ronda.h may pass a value that this enum lacks.
  const int raw = ronda::RawValue(status);
  return raw == RONDA_ERROR_PEER_FAILED || raw == RONDA_ERROR_DEADLINE ? 1 : 0;
}

const char* ronda_last_error(void) { return ronda::LastErrorText(); }

ronda_status ronda_init(const ronda_options* options) {
  return ronda::Call([&] {
    if (ronda::IsForkOfRank()) return ronda::InitInForkOfRank();
    if (ronda_current() != 0) return ronda::NotInThreads(RONDA_ERROR_ALREADY_INITIALIZED, "ronda_init");
    ronda::Outcome joined = ronda::globals().runtime.Start([&] { return ronda::JoinFirst(options); });
    ronda::DisarmStopSignalWithoutJob();
    return joined;
  });
}

ronda_status ronda_shutdown(void) {
  return ronda::Call([] {
    if (ronda_current() != 0) return ronda::NotInThreads(RONDA_ERROR_INVALID_ARGUMENT, "ronda_shutdown");
    ronda::Outcome left = ronda::globals().runtime.Stop();
    ronda::DisarmStopSignalWithoutJob();
    return left;
  });
}

ronda_status ronda_abort(const char* reason) {
  return ronda::CallWithSession([&](ronda::Session& session) -> ronda::Outcome {
    if (reason == nullptr) return ronda::NullText("ronda_abort", "reason");
    session.runtime().Abandon(absl::UnavailableError(absl::StrCat("this rank has aborted the job: ", reason)));
    return {};
  });
}

ronda_status ronda_job_status(void) {
  return ronda::CallWithSession(
      [](ronda::Session& session) { return ronda::Failure(session.runtime().failure(), ronda::Answer::kCompletion); });
}

ronda_status ronda_elastic_reform(const ronda_elastic_reform_options* options) {
  return ronda::Call([&] {
    if (ronda::IsForkOfRank()) return ronda::InitInForkOfRank();
    if (ronda_current() != 0) return ronda::NotInThreads(RONDA_ERROR_INVALID_ARGUMENT, "ronda_elastic_reform");
    ronda::Outcome joined = ronda::ReformJob(options);
    // After a recoverable failure, the process still wants a place in the job.
    if (!joined.ok() && ronda_status_is_recoverable(joined.code) == 0) ronda::DisarmStopSignalWithoutJob();
    return joined;
  });
}

int ronda_is_initialized(void) { return ronda::CurrentSession() != nullptr ? 1 : 0; }
int ronda_rank(void) { return ronda::FromTopology(&Topology::rank); }
int ronda_size(void) { return ronda::FromTopology(&Topology::size); }
int ronda_local_rank(void) { return ronda::FromTopology(&Topology::local_rank); }
int ronda_local_size(void) { return ronda::FromTopology(&Topology::local_size); }
int ronda_cross_rank(void) { return ronda::FromTopology(&Topology::cross_rank); }
int ronda_cross_size(void) { return ronda::FromTopology(&Topology::cross_size); }

ronda_status ronda_get_place(ronda_place* place) {
  return ronda::Call([&] { return ronda::WritePlace(place); });
}

ronda_status ronda_get_statistics(ronda_statistics* statistics) {
  return ronda::CallWithSession([&](ronda::Session& session) -> ronda::Outcome {
    if (statistics == nullptr) return ronda::NullArgument("ronda_get_statistics", "statistics");
    return ronda::WriteSized(ronda::ToC(session.runtime().statistics()), statistics, "ronda_statistics");
  });
}

ronda_status ronda_start_timeline(const char* path) {
  return ronda::CallWithSession([&](ronda::Session& session) -> ronda::Outcome {
    if (path == nullptr) return ronda::NullText("ronda_start_timeline", "path");
    return ronda::Failure(session.runtime().StartTimeline(path), ronda::Answer::kStartup);
  });
}

ronda_status ronda_stop_timeline(void) {
  return ronda::CallWithSession([](ronda::Session& session) -> ronda::Outcome {
    session.runtime().StopTimeline();
    return {};
  });
}

ronda_status ronda_run_threads(const ronda_options* options, int size, void (*body)(void* context), void* context) {
  return ronda::Call([&] { return ronda::RunThreadsOf(options, size, body, context); });
}

ronda_context ronda_current(void) { return ronda::RankContexts::Current(); }

ronda_status ronda_make_current(ronda_context context) {
  return ronda::Call([&]() -> ronda::Outcome {
    if (ronda::globals().ranks.MakeCurrent(context)) return {};
    return {RONDA_ERROR_INVALID_ARGUMENT, absl::StrCat("ronda_make_current: there is no context ", context,
                                                       ": the body of its rank has returned, or it never was one")};
  });
}

ronda_status ronda_add_process_set(const int* ranks, int count, ronda_process_set* id) {
  if (id == nullptr) return ronda::Call([] { return ronda::NullArgument("ronda_add_process_set", "id"); });
  std::shared_ptr<ronda::Handle> handle;
  const ronda_status status = ronda::SubmitAndWait(
      [&](ronda::Session& session) -> absl::StatusOr<std::shared_ptr<ronda::Handle>> {
        session.ForgetRemovedSets();
        RONDA_ASSIGN_OR_RETURN(ronda::Submission submission, ronda::AddProcessSetSubmission(ranks, count));
        return session.SubmitNumbered(std::move(submission));
      },
      &handle);
  if (status == RONDA_OK) *id = static_cast<ronda_process_set>(handle->result().number);
  return status;
}

ronda_status ronda_create_process_set(const int* ranks, int count, const char* tag, ronda_process_set* id) {
  if (id == nullptr) return ronda::Call([] { return ronda::NullArgument("ronda_create_process_set", "id"); });
  std::shared_ptr<ronda::Handle> handle;
  const ronda_status status = ronda::SubmitAndWait(
      [&](ronda::Session& session) { return ronda::CreateProcessSet(session, ranks, count, tag); }, &handle);
  if (status == RONDA_OK) *id = static_cast<ronda_process_set>(handle->result().number);
  return status;
}

ronda_status ronda_remove_process_set(ronda_process_set id) {
  std::shared_ptr<ronda::Handle> handle;
  return ronda::SubmitAndWait(
      [&](ronda::Session& session) {
        session.ForgetRemovedSets();
        const ronda::ProcessSetId by = session.runtime().RemoversOf(id);
        return session.SubmitNumbered(ronda::RemoveProcessSetSubmission(id, by));
      },
      &handle);
}

int ronda_process_set_size(ronda_process_set id) {
  const auto members = ronda::FindProcessSet(id);
  return members == nullptr ? -1 : members->size();
}

int ronda_process_set_rank(ronda_process_set id) {
  const auto members = ronda::FindProcessSet(id);
  return members == nullptr ? -1 : members->PositionOf(ronda_rank()).value_or(-1);
}

ronda_status ronda_process_set_ranks(ronda_process_set id, int* ranks) {
  return ronda::CallWithSession([&](ronda::Session& session) -> ronda::Outcome {
    if (ranks == nullptr) return ronda::NullArgument("ronda_process_set_ranks", "ranks");
    const auto members = session.runtime().ProcessSet(id);
    if (!members.ok()) return ronda::Failure(members.status(), ronda::Answer::kSubmission);
    std::copy((*members)->ranks().begin(), (*members)->ranks().end(), ranks);
    return {};
  });
}

ronda_status ronda_process_set_ids(ronda_process_set* ids, int capacity, int* count) {
  return ronda::CallWithSession([&](ronda::Session& session) -> ronda::Outcome {
    if (count == nullptr) return ronda::NullArgument("ronda_process_set_ids", "count");
    if (ids == nullptr && capacity > 0) return ronda::NullArgument("ronda_process_set_ids", "ids");
    const std::vector<ronda::ProcessSetId> all = session.runtime().ProcessSetIds();
    *count = static_cast<int>(all.size());
    std::copy_n(all.begin(), std::clamp(capacity, 0, *count), ids);
    return {};
  });
}

ronda_status ronda_barrier(ronda_process_set process_set) { return ronda::Barrier(process_set, 0); }

ronda_status ronda_monitored_barrier(ronda_process_set process_set, double timeout_s) {
  return ronda::Barrier(process_set, timeout_s);
}

ronda_status ronda_join(ronda_process_set process_set, ronda_absent absent, int* last_rank) {
  std::shared_ptr<ronda::Handle> handle;
  const ronda_status status = ronda::SubmitAndWait(
      [&](ronda::Session& session) { return ronda::SubmitJoin(session, process_set, absent); }, &handle);
  if (status == RONDA_OK && last_rank != nullptr) *last_rank = static_cast<int>(handle->result().number);
  return status;
}
