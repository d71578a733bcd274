// SPDX-License-Identifier: Apache-2.0

// ronda-monitor: shows the jobs that this user runs on this host, over HTTP and gRPC. See `ronda-monitor --help`.
#include <sys/signalfd.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "programs/monitor/jobs/job_control.h"
#include "programs/monitor/jobs/job_sampler.h"
#include "programs/monitor/jobs/rank_control.h"
#include "programs/monitor/jobs/rank_reader.h"
#include "programs/monitor/jobs/watched_jobs.h"
#include "programs/monitor/serve/access.h"
#include "programs/monitor/serve/http.h"
#include "programs/monitor/serve/http_server.h"
#include "programs/monitor/serve/job_json.h"
#include "programs/monitor/serve/metrics.h"
#include "programs/monitor/serve/monitor_service.h"
#include "programs/monitor/serve/page.h"
#include "programs/monitor/serve/proved_calls.h"
#include "programs/options/command_line.h"
#include "programs/options/option.h"
#include "runtime/base/clock.h"
#include "runtime/base/config.h"
#include "runtime/base/environment.h"
#include "runtime/base/mutex.h"
#include "runtime/base/peer.h"
#include "runtime/base/poll.h"
#include "runtime/base/status_macros.h"
#include "runtime/base/unique_fd.h"
#include "runtime/base/version.h"
#include "runtime/monitor/flight_recorder.h"
#include "runtime/net/endpoint.h"
#include "runtime/net/message_streams.h"
#include "runtime/net/served_call.h"

namespace ronda {
namespace {

constexpr char kUsage[] = "usage: ronda-monitor [OPTION]... [JOB]\n";
constexpr char kHelp[] =
    "\nShows jobs that you run on this host: a page for browsers at /, metrics for Prometheus at /metrics, JSON at\n"
    "/api/v1/job. JOB is a job's name (rondarun --name), the number of its rondarun or of a rank's process, or\n"
    "the beginning of its id: the monitor ends with that job. Without JOB it shows all of your jobs, also those that\n"
    "begin later, until it gets SIGTERM or SIGINT.\n\n";
constexpr char kLoopback[] = "loopback";
constexpr absl::Duration kTimeout = absl::Seconds(2);  // for the answers of ranks
constexpr int kUsageError = 2;

struct Settings {
  enum class Action { kServe, kHelp, kVersion } action = Action::kServe;
  enum class Lifetime { kOfTheJob, kUntilSignal } lifetime = Lifetime::kOfTheJob;
  int port = 0;
  std::string interface = kLoopback;
  std::string token_file;  // empty: one in the user's folder
  std::string job;         // empty: all
  enum class Rpc { kNo, kOnASocket } rpc = Rpc::kNo;
  std::string rpc_interface;  // empty: none
  int rpc_port = 0;
  std::string others;  // HOST:PORT,...
};

OptionTable MakeOptions(Settings* settings) {
  using Action = Settings::Action;
  std::vector<Option> options = {
      MakeOption("--port N", "Listen on this port (default: 0, any that is free).",
                 IntegerInto(&settings->port, {.what = "a port", .example = "9464", .max = 65535})),
      MakeOption("--interface NAME",
                 "Listen on this network interface, for other hosts, too: the token then\ntravels without encryption "
                 "(default: loopback, for this host alone).",
                 TextInto(&settings->interface, {.what = "an interface", .example = "eth0"})),
      MakeOption("--token-file FILE",
                 "Take the token from this file, which only you may use (default: one that\nis made in "
                 "$XDG_RUNTIME_DIR/ronda or /tmp/ronda-UID).",
                 TextInto(&settings->token_file, {.what = "a file", .example = "~/.ronda-token"})),
      MakeOption(
          "--grpc",
          "Serve the jobs over gRPC, too, on a socket in $XDG_RUNTIME_DIR/ronda or\n/tmp/ronda-UID: for programs, "
          "and to begin timelines or end a job.",
          Assign(&settings->rpc, Settings::Rpc::kOnASocket)),
      MakeOption("--grpc-interface NAME",
                 "Serve JOB over gRPC on this network interface, for who proves its secret:\n$RONDA_JOB_SECRET or, "
                 "without it, the one that its ranks were started with.",
                 TextInto(&settings->rpc_interface, {.what = "an interface", .example = "eth0"})),
      MakeOption("--grpc-port N", "Its port there (default: 0, any that is free).",
                 IntegerInto(&settings->rpc_port, {.what = "a port", .example = "9465", .max = 65535})),
      MakeOption("--ask HOST:PORT,...",
                 "Show JOB's ranks on other hosts, too: ask the monitors there, which have\n--grpc-interface.",
                 TextInto(&settings->others, {.what = "addresses", .example = "node2:9465,node3:9465"})),
      MakeOption("--wait", "JOB may begin later; end with SIGTERM or SIGINT.",
                 Assign(&settings->lifetime, Settings::Lifetime::kUntilSignal)),
      MakeOption("--version -v", "Show the version, and exit.", Assign(&settings->action, Action::kVersion)),
      MakeOption("--help -h", "Show this text, and exit.", Assign(&settings->action, Action::kHelp)),
  };
  for (Option& option : options) {
    if (option.names[0] == "--version" || option.names[0] == "--help") option.kind = Option::Kind::kQuestion;
  }
  return OptionTable(std::move(options));
}

absl::StatusOr<Settings> ReadWords(const std::vector<std::string>& words) {
  Settings settings;
  const OptionTable options = MakeOptions(&settings);
  RONDA_ASSIGN_OR_RETURN(const GivenWords given, options.Read(words));
  for (const GivenOption& option : given.options) RONDA_RETURN_IF_ERROR(option.Apply());
  if (given.command.size() > 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("there is one JOB at most, behind the options; got ", absl::StrJoin(given.command, " ")));
  }
  if (!given.command.empty()) settings.job = given.command[0];
  if (settings.job.empty() && (!settings.rpc_interface.empty() || !settings.others.empty())) {
    return absl::InvalidArgumentError("--grpc-interface and --ask are about one JOB: name it");
  }
  if (settings.job.empty()) settings.lifetime = Settings::Lifetime::kUntilSignal;
  return settings;
}

absl::StatusOr<Endpoint> EndpointOn(const std::string& interface, int port) {
  Endpoint endpoint = {.host = "127.0.0.1", .address = "127.0.0.1", .loopback = true};
  if (interface != kLoopback) {
    RONDA_ASSIGN_OR_RETURN(endpoint, ChooseAddress(InterfaceAddresses(), {interface}));
  }
  endpoint.port = port;
  return endpoint;
}

// Returns the names that clients may use in the Host header.
std::vector<std::string> NamesOf(const Endpoint& endpoint) {
  if (endpoint.loopback) return {"localhost", "127.0.0.1"};
  const bool is_ipv6 = endpoint.family == AddressFamily::kIPv6;
  return {is_ipv6 ? absl::StrCat("[", endpoint.address, "]") : endpoint.address, absl::AsciiStrToLower(HostName())};
}

absl::StatusOr<std::string> TokenFileOf(const Settings& settings) {
  if (!settings.token_file.empty()) return settings.token_file;
  RONDA_ASSIGN_OR_RETURN(const std::string folder, UserFolder(ProcessEnvironment()));
  return EnsureTokenFile(folder);
}

// The monitor's socket file in the user's folder. The destructor removes it.
class SocketFile {
 public:
  explicit SocketFile(const std::string& folder) : path_(absl::StrCat(folder, "/monitor-", getpid(), ".sock")) {}
  ~SocketFile() { unlink(path_.c_str()); }
  SocketFile(const SocketFile&) = delete;
  SocketFile& operator=(const SocketFile&) = delete;

  const std::string& path() const { return path_; }

 private:
  const std::string path_;
};

// The jobs that the monitor watches. One thread samples them, and other threads show them. Thread-safe.
class Monitor {
 public:
  // An empty `job` means all jobs.
  explicit Monitor(const std::string& job)
      : jobs_({.is_watched = OfJobsNamed(job), .search = job.empty() ? Search::kAlways : Search::kUntilComplete}),
        page_(MakeJobsPage()) {}

  // Starts asking the monitors of other hosts. Must be called before other threads use this object.
  absl::Status Ask(const std::vector<Endpoint>& others, const OtherMonitor::Options& options) {
    for (const Endpoint& endpoint : others) {
      OtherMonitor::Options of_this = options;
      of_this.endpoint = endpoint;
      RONDA_ASSIGN_OR_RETURN(others_.emplace_back(), OtherMonitor::Start(of_this));
    }
    return absl::OkStatus();
  }

  void Sample() {
    MutexLock lock(&mu_);
    for (const std::unique_ptr<OtherMonitor>& other : others_) {
      absl::StatusOr<OtherHost> heard = other->heard();
      if (heard.ok()) {
        jobs_.Tell(*std::move(heard));
      } else if (absl::IsPermissionDenied(heard.status()) && said_.insert(heard.status().ToString()).second) {
        fprintf(stderr, "ronda-monitor: %s\n", std::string(heard.status().message()).c_str());
      }
    }
    jobs_.Sample(FlightNow());
    jobs_.ForgetEnded();
    for (const std::string& problem : jobs_.TakeProblems()) fprintf(stderr, "ronda-monitor: %s\n", problem.c_str());
  }

  bool HasJobs() const {
    MutexLock lock(&mu_);
    return jobs_.size() > 0;
  }
  absl::Duration NextPeriod() const {
    MutexLock lock(&mu_);
    return jobs_.NextPeriod();
  }

  std::optional<Page> PageAt(absl::string_view path) const {
    const absl::Time clock_zero = CalendarNow() - FlightNow();
    if (path == "/") return page_;
    if (path == "/metrics") return Page{.type = kMetricsType, .body = MetricsText(Snapshots(), clock_zero)};
    if (path == "/api/v1/job") return Page{.type = "application/json", .body = JobsJson(Snapshots(), clock_zero)};
    return std::nullopt;
  }

  std::vector<JobSnapshot> Snapshots() const {
    MutexLock lock(&mu_);
    return jobs_.Snapshots();
  }

 private:
  using Search = WatchedJobs::Options::Search;

  mutable Mutex mu_;
  WatchedJobs jobs_ ABSL_GUARDED_BY(mu_);
  std::set<std::string> said_ ABSL_GUARDED_BY(mu_);
  std::vector<std::unique_ptr<OtherMonitor>> others_;
  const Page page_;
};

// Returns the service for gRPC clients. `monitor` must outlive the service.
MonitorService MakeService(const Monitor* monitor) {
  return MonitorService(
      {.snapshots = [monitor] { return monitor->Snapshots(); },
       .ask = [](const std::string& job,
                 const TimelineRequest& request) { return AskRanks(FindRanks(OfJob(job)), request, kTimeout); },
       .end = [](const std::string& job) { return EndJob(FindRanks(OfJob(job))); }});
}

// A gRPC call that `Service` answers.
template <typename Service>
class MonitorCall final : public ServedCall {
 public:
  MonitorCall(Service* service, absl::string_view method, MessageStream stream)
      : ServedCall(std::move(stream)), service_(service), method_(method) {}

 private:
  void Serve(absl::string_view request) override {
    const absl::StatusOr<std::string> answer = service_->Answer(method_, request);
    // Every answer except that to Challenge is for a client that has proved its right to ask.
    if (answer.ok() && method_ != kMonitorChallenge) Authenticated();
    Answer(answer);
  }

  Service* const service_;
  const std::string method_;
};

// Starts a server that passes each call to `service`, which must outlive the server. Errors: those of
// MessageServer::Start.
template <typename Service>
absl::StatusOr<std::unique_ptr<MessageServer>> StartServer(MessageServer::Options options, Service* service) {
  options.plugin = ProcessEnvironment()("RONDA_HOSTS_PLUGIN").value_or("");
  options.limits.max_message_bytes = size_t{64} << 10;
  options.grace = absl::Seconds(1);
  options.accept = [service](absl::string_view method, MessageStream stream) {
    stream.Open(new MonitorCall<Service>(service, method, stream));
  };
  return MessageServer::Start(std::move(options));
}

// Returns a server for `service`, or null if `socket` is null. Every user with access to the socket's folder may call
// the service.
absl::StatusOr<std::unique_ptr<MessageServer>> ServeRpc(const SocketFile* socket, const MonitorService* service) {
  if (socket == nullptr) return nullptr;
  auto server = StartServer({.socket = socket->path()}, service);
  if (!absl::IsInvalidArgument(server.status())) return server;
  return absl::InvalidArgumentError(
      absl::StrCat(server.status().message(), "; set XDG_RUNTIME_DIR to a folder with a shorter name"));
}

// Returns the secret with which a job's monitors prove to each other that they belong to the job.
absl::StatusOr<std::string> SecretFor(const Settings& settings) {
  std::string secret = ProcessEnvironment()("RONDA_JOB_SECRET").value_or("");
  if (secret.empty()) secret = SecretOf(FindRanks(OfJobsNamed(settings.job)));
  if (!secret.empty()) return secret;
  return absl::FailedPreconditionError(
      "there is no secret of the job to prove: its ranks do not run yet, or were started without RONDA_JOB_SECRET; set "
      "that variable to the same value for the monitors of all hosts");
}

absl::StatusOr<std::vector<Endpoint>> OthersOf(const Settings& settings) {
  std::vector<Endpoint> others;
  for (const absl::string_view other : absl::StrSplit(settings.others, ',', absl::SkipEmpty())) {
    const size_t colon = other.rfind(':');
    int port = 0;
    if (colon == absl::string_view::npos || !absl::SimpleAtoi(other.substr(colon + 1), &port) || port < 1) {
      return absl::InvalidArgumentError(absl::StrCat("--ask takes HOST:PORT, and not '", other, "'"));
    }
    RONDA_ASSIGN_OR_RETURN(others.emplace_back(), ResolveEndpoint(other.substr(0, colon), port));
  }
  return others;
}

// The connection between the monitors on a job's hosts.
struct BetweenHosts {
  std::unique_ptr<ProvedCalls> calls;
  std::unique_ptr<MessageServer> server;  // nullptr: other monitors do not ask this one
};

absl::StatusOr<BetweenHosts> Connect(const Settings& settings, const MonitorService* service, Monitor* monitor) {
  BetweenHosts between;
  if (settings.rpc_interface.empty() && settings.others.empty()) return between;
  RONDA_ASSIGN_OR_RETURN(const std::string secret, SecretFor(settings));
  const std::string plugin = ProcessEnvironment()("RONDA_HOSTS_PLUGIN").value_or("");
  RONDA_ASSIGN_OR_RETURN(const std::vector<Endpoint> others, OthersOf(settings));
  RONDA_RETURN_IF_ERROR(monitor->Ask(others, {.plugin = plugin, .job = settings.job, .secret = secret}));
  if (settings.rpc_interface.empty()) return between;
  RONDA_ASSIGN_OR_RETURN(Endpoint endpoint, EndpointOn(settings.rpc_interface, settings.rpc_port));
  between.calls = std::make_unique<ProvedCalls>(service, secret);
  RONDA_ASSIGN_OR_RETURN(between.server, StartServer({.endpoint = endpoint}, between.calls.get()));
  endpoint.port = between.server->port();
  printf("%s serves ronda.v1.MonitorService over gRPC, for who proves the job's secret\n",
         NumericText(endpoint).c_str());
  return between;
}

// Samples the jobs until they have ended, or until the monitor receives a signal.
absl::Status Run(const Settings& settings, int signals, Monitor* monitor) {
  absl::Duration next = FlightNow();
  while (settings.lifetime == Settings::Lifetime::kUntilSignal || monitor->HasJobs()) {
    next = std::max(next + monitor->NextPeriod(), FlightNow());
    pollfd signal = {.fd = signals, .events = POLLIN};
    RONDA_ASSIGN_OR_RETURN(const int ready, PollDescriptors({&signal, 1}, next - FlightNow()));
    if (ready > 0) break;
    monitor->Sample();
  }
  return absl::OkStatus();
}

// Returns the id of the job that the user's word identifies, without an epoch. If no such job is running yet, returns
// the word itself if the job may begin later (--wait).
absl::StatusOr<std::string> IdOfJob(const Settings& settings) {
  if (settings.job.empty()) return settings.job;
  const absl::StatusOr<std::string> job = ChooseJob(settings.job, KnownJobs(FindRanks().ranks));
  if (job.ok()) return SplitName(*job).job_id;
  if (!absl::IsNotFound(job.status())) return job.status();
  if (settings.lifetime == Settings::Lifetime::kUntilSignal) return settings.job;
  return absl::NotFoundError(absl::StrCat(job.status().message(), "; with --wait it may begin later"));
}

absl::StatusOr<std::unique_ptr<SocketFile>> SocketOf(const Settings& settings) {
  if (settings.rpc == Settings::Rpc::kNo) return nullptr;
  RONDA_ASSIGN_OR_RETURN(const std::string folder, UserFolder(ProcessEnvironment()));
  return std::make_unique<SocketFile>(folder);
}

absl::Status Serve(Settings settings, int signals) {
  RONDA_ASSIGN_OR_RETURN(settings.job, IdOfJob(settings));
  RONDA_ASSIGN_OR_RETURN(const Endpoint endpoint, EndpointOn(settings.interface, settings.port));
  RONDA_ASSIGN_OR_RETURN(const std::string token_file, TokenFileOf(settings));
  RONDA_ASSIGN_OR_RETURN(std::string token, ReadTokenFile(token_file));
  Monitor monitor(settings.job);
  monitor.Sample();
  const HttpSite site(Access(std::move(token), NamesOf(endpoint)),
                      [&](absl::string_view path) { return monitor.PageAt(path); });
  RONDA_ASSIGN_OR_RETURN(const std::unique_ptr<HttpServer> server, HttpServer::Start(endpoint, &site, {}));
  const MonitorService service = MakeService(&monitor);
  RONDA_ASSIGN_OR_RETURN(const std::unique_ptr<SocketFile> socket, SocketOf(settings));
  RONDA_ASSIGN_OR_RETURN(const std::unique_ptr<MessageServer> rpc, ServeRpc(socket.get(), &service));
  RONDA_ASSIGN_OR_RETURN(const BetweenHosts between, Connect(settings, &service, &monitor));
  Endpoint own = endpoint;
  own.port = server->port();
  printf("http://%s/ shows %s; the token is in %s\n", NumericText(own).c_str(),
         settings.job.empty() ? "your jobs" : absl::StrCat("job ", settings.job).c_str(), token_file.c_str());
  if (socket != nullptr) printf("unix:%s serves ronda.v1.MonitorService over gRPC\n", socket->path().c_str());
  if (fflush(stdout) != 0) return absl::UnavailableError("cannot write to the standard output");
  return Run(settings, signals, &monitor);
}

int Fail(const absl::Status& status, int exit_code) {
  fprintf(stderr, "ronda-monitor: %s\n", std::string(status.message()).c_str());
  return exit_code;
}

int Main(const std::vector<std::string>& words) {
  const absl::StatusOr<Settings> settings = ReadWords(words);
  if (!settings.ok()) {
    Fail(settings.status(), kUsageError);
    fprintf(stderr, "%s       ronda-monitor --help explains the options\n", kUsage);
    return kUsageError;
  }
  if (settings->action == Settings::Action::kHelp) {
    Settings unused;
    return printf("%s%s%s", kUsage, kHelp, MakeOptions(&unused).Describe().c_str()) < 0 ? 1 : 0;
  }
  if (settings->action == Settings::Action::kVersion) return printf("ronda-monitor %s\n", kVersion) < 0 ? 1 : 0;
  // Block the signals before any thread starts, so that all threads block them.
  sigset_t ending;
  sigemptyset(&ending);
  sigaddset(&ending, SIGTERM);
  sigaddset(&ending, SIGINT);
  sigaddset(&ending, SIGHUP);
  sigprocmask(SIG_BLOCK, &ending, nullptr);
  const UniqueFd signals(signalfd(-1, &ending, SFD_CLOEXEC));
  if (!signals.valid()) return Fail(absl::ErrnoToStatus(errno, "cannot create a signalfd"), 1);
  const absl::Status status = Serve(*settings, signals.get());
  return status.ok() ? 0 : Fail(status, 1);
}

}  // namespace
}  // namespace ronda

int main(int argc, char** argv) { return ronda::Main(std::vector<std::string>(argv + 1, argv + argc)); }
