// SPDX-License-Identifier: Apache-2.0

// Tests the program ronda-monitor with real jobs.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "client/ronda.hpp"
#include "proto/ronda/v1/monitor.grpc.pb.h"
#include "runtime/base/files.h"
#include "runtime/base/unique_fd.h"
#include "runtime/net/proof.h"
#include "tests/programs/monitor/serve/http_client.h"
#include "tests/testing/await.h"
#include "tests/testing/process_world.h"

namespace ronda {
namespace {

using ::testing::AllOf;
using testing::Await;
using ::testing::EndsWith;
using testing::ExpectRankProgramSucceeds;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr char kProgram[] = "programs/monitor/serve/ronda-monitor";
constexpr char kToken[] = "0123456789abcdef0123456789abcdef";

// Returns the folder that all processes of this test share.
std::string TestFolder() {
  const char* const folder = std::getenv("MONITOR_TEST_FOLDER");
  return folder != nullptr ? folder : absl::StrCat(::testing::TempDir(), "/monitor.", getpid());
}

std::string WriteToken(mode_t mode = 0600) {
  std::filesystem::create_directories(TestFolder());
  const std::string path = TestFolder() + "/token";
  std::ofstream(path) << kToken << "\n";
  chmod(path.c_str(), mode);
  return path;
}

// A running ronda-monitor. The destructor ends it.
class MonitorProcess {
 public:
  explicit MonitorProcess(const std::vector<std::string>& arguments, const std::vector<std::string>& before = {}) {
    std::vector<std::string> words = before;
    words.emplace_back(kProgram);
    words.insert(words.end(), arguments.begin(), arguments.end());
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    int ends[2];
    EXPECT_EQ(pipe2(ends, O_CLOEXEC), 0);
    output_.Reset(ends[0]);
    const UniqueFd write_end(ends[1]);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDERR_FILENO);
    EXPECT_EQ(posix_spawnp(&pid_, argv[0], &actions, nullptr, argv.data(), environ), 0);
    posix_spawn_file_actions_destroy(&actions);
  }
  ~MonitorProcess() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  MonitorProcess(const MonitorProcess&) = delete;
  MonitorProcess& operator=(const MonitorProcess&) = delete;

  // Returns the port in the monitor's first line, or 0 if the monitor has ended.
  int ReadPort() {
    const std::vector<std::string> parts = absl::StrSplit(ReadLine("http:"), absl::ByAnyChar(":/"));
    return parts.size() > 4 && absl::SimpleAtoi(parts[4], &port_) ? port_ : 0;
  }
  // Returns the name of the socket in the monitor's second line, which is an address for gRPC.
  std::string ReadSocket() {
    const std::string line = ReadLine("unix:");
    return line.substr(0, line.find(' '));
  }
  // Returns the next line that begins with `beginning`, or "" if the monitor has ended. Skips other lines, for example
  // lines about ranks on this host that the monitor cannot read, because they use a different version of the library.
  std::string ReadLine(const std::string& beginning) {
    std::string line;
    for (char c; read(output_.get(), &c, 1) == 1;) {
      said_ += c;
      line += c;
      if (c != '\n') continue;
      if (absl::StartsWith(line, beginning)) return line;
      line.clear();
    }
    return "";
  }
  void Signal(int signo) const { kill(pid_, signo); }
  // Waits for the monitor to end. Returns its exit code, or minus the signal that killed it.
  int Finish() {
    char buffer[256];
    for (ssize_t bytes; (bytes = read(output_.get(), buffer, sizeof(buffer))) > 0;) {
      said_.append(buffer, static_cast<size_t>(bytes));
    }
    int status = 0;
    waitpid(std::exchange(pid_, -1), &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }
  pid_t pid() const { return pid_; }
  const std::string& said() const { return said_; }

  std::string Get(const std::string& path, const std::vector<std::string>& headers) const {
    const UniqueFd connection = testing::Connect(port_);
    testing::Send(connection, absl::StrCat("GET ", path, " HTTP/1.1\r\n", absl::StrJoin(headers, "\r\n"), "\r\n\r\n"));
    return testing::Receive(connection);
  }
  // Requests a page, and returns it without the headers.
  std::string Get(const std::string& path) const {
    const std::string reply =
        Get(path, {absl::StrCat("Host: localhost:", port_), absl::StrCat("Authorization: Bearer ", kToken)});
    EXPECT_THAT(reply, StartsWith("HTTP/1.1 200 "));
    const size_t end = reply.find("\r\n\r\n");
    return end == std::string::npos ? "" : reply.substr(end + 4);
  }

 private:
  pid_t pid_ = -1;
  int port_ = 0;
  UniqueFd output_;
  std::string said_;
};

// Runs a monitor until it ends, and returns its output.
std::string Say(const std::vector<std::string>& arguments, int exit_code, const std::vector<std::string>& before = {}) {
  MonitorProcess monitor(arguments, before);
  EXPECT_EQ(monitor.Finish(), exit_code);
  return monitor.said();
}

// Returns the value of a series in the metrics, or -1 if the series is missing.
double ValueOf(const std::string& metrics, const std::string& series) {
  const std::vector<std::string> parts = absl::StrSplit(metrics, absl::StrCat("\n", series, " "));
  double value = -1;
  if (parts.size() == 2) (void)absl::SimpleAtod(parts[1].substr(0, parts[1].find('\n')), &value);
  return value;
}

// Makes steps until `done` is true on any rank.
void StepUntil(const std::atomic<bool>& done) {
  for (float sum = 0; sum == 0;) {
    absl::SleepFor(absl::Milliseconds(rank() == 2 ? 5 : 0));
    sum = done ? 1 : 0;
    allreduce(tensor("gradient", &sum), {Op::Sum});
  }
}

// Makes steps on all ranks while a thread of rank 0 calls `observe`.
void StepWhile(const std::function<void(const std::string& job)>& observe) {
  init();
  std::atomic<bool> done{false};
  std::thread observer;
  if (rank() == 0) {
    observer = std::thread([&] {
      observe(std::getenv("RONDA_JOB_ID"));
      done = true;
    });
  }
  StepUntil(done);
  if (observer.joinable()) observer.join();
  shutdown();
}

// -- Beside a job --

// Rank 0 starts the monitor, which ends shortly after rank 0.
void SeesMetricsMove() {
  StepWhile([](const std::string& job) {
    MonitorProcess monitor({"--token-file", WriteToken(), job});
    EXPECT_GT(monitor.ReadPort(), 0) << monitor.said();
    const auto series = [&](const std::string& metric, int rank) {
      return absl::StrCat(metric, "{job_id=\"", job, "\",rank=\"", rank, "\"}");
    };
    const std::string first = monitor.Get("/metrics");
    EXPECT_THAT(first, HasSubstr(absl::StrCat("ronda_job_info{job_id=\"", job,
                                              "\",size=\"3\",ranks_here=\"3\",name=\"\",command=\"")));
    for (int rank = 0; rank < 3; ++rank) {
      const double before = ValueOf(first, series("ronda_steps_total", rank));
      EXPECT_GE(before, 0);
      EXPECT_TRUE(Await([&] { return ValueOf(monitor.Get("/metrics"), series("ronda_steps_total", rank)) > before; }));
    }
    EXPECT_TRUE(Await([&] {
      return ValueOf(monitor.Get("/metrics"), series("ronda_blamed_wait_seconds_total", 2)) > 0;
    })) << "the others wait for rank 2";
    EXPECT_GT(ValueOf(monitor.Get("/metrics"), series("ronda_lateness_seconds_count", 2)), 0);
    EXPECT_GT(ValueOf(monitor.Get("/metrics"), series("ronda_last_step_timestamp_seconds", 1)), 1.6e9);
    const nlohmann::json jobs = nlohmann::json::parse(monitor.Get("/api/v1/job")).at("jobs");
    ASSERT_EQ(jobs.size(), 1u);
    EXPECT_EQ(jobs.at(0).at("job"), job);
    EXPECT_EQ(jobs.at(0).at("ranks").size(), 3u);
    EXPECT_THAT(monitor.Get("/"), HasSubstr("</html>"));
    monitor.Signal(SIGTERM);
    EXPECT_EQ(monitor.Finish(), 0);
  });
}

TEST(RondaMonitorTest, ShowsMetricsThatMoveOfARealJob) {
  ExpectRankProgramSucceeds("sees_metrics_move", 3, {.env = {{"MONITOR_TEST_FOLDER", TestFolder()}}});
}

// Makes a call as a gRPC client, and expects `code`.
template <typename Response, typename Method, typename Request>
Response Call(const std::unique_ptr<v1::MonitorService::Stub>& stub, Method method, const Request& request,
              grpc::StatusCode code = grpc::StatusCode::OK) {
  grpc::ClientContext context;
  Response response;
  const grpc::Status status = (*stub.*method)(&context, request, &response);
  EXPECT_EQ(status.error_code(), code) << status.error_message();
  return response;
}

void AsksTheRanks(const std::unique_ptr<v1::MonitorService::Stub>& stub, const std::string& folder) {
  using Stub = v1::MonitorService::Stub;
  v1::StartTimelineRequest start;
  start.set_path(folder + "/rpc.json");
  const auto begun = Call<v1::TimelineResponse>(stub, &Stub::StartTimeline, start);
  ASSERT_EQ(begun.answers_size(), 2);
  EXPECT_EQ(begun.answers(1).state(), v1::TimelineResponse::Answer::STATE_DONE) << begun.answers(1).error();
  EXPECT_EQ(begun.answers(1).file(), folder + "/rpc.rank1.json");
  EXPECT_EQ(Call<v1::TimelineResponse>(stub, &Stub::StopTimeline, v1::StopTimelineRequest()).answers_size(), 2);
  EXPECT_THAT(ReadFile(folder + "/rpc.rank1.json").value_or(""), HasSubstr("\"ALLREDUCE\""));
  // The monitor cannot stop this job, because a test and not rondarun has started its ranks.
  Call<v1::StopJobResponse>(stub, &Stub::StopJob, v1::StopJobRequest(), grpc::StatusCode::FAILED_PRECONDITION);
}

void IsAskedOverGrpc() {
  StepWhile([](const std::string& job) {
    using Stub = v1::MonitorService::Stub;
    char folder[] = "/tmp/ronda-monitor-test-XXXXXX";  // a socket's path is short
    ASSERT_NE(mkdtemp(folder), nullptr);
    MonitorProcess monitor({"--grpc", "--token-file", WriteToken(), job},
                           {"/usr/bin/env", absl::StrCat("XDG_RUNTIME_DIR=", folder)});
    const std::string socket = monitor.ReadSocket();
    EXPECT_EQ(socket, absl::StrCat("unix:", folder, "/ronda/monitor-", monitor.pid(), ".sock")) << monitor.said();
    const auto stub = v1::MonitorService::NewStub(grpc::CreateChannel(socket, grpc::InsecureChannelCredentials()));
    uint64_t steps = 0;
    EXPECT_TRUE(Await([&] {
      const auto shown = Call<v1::GetJobsResponse>(stub, &Stub::GetJobs, v1::GetJobsRequest());
      if (shown.jobs_size() == 1 && shown.jobs(0).ranks_size() == 2) steps = shown.jobs(0).ranks(1).steps();
      return steps > 0;
    }));
    EXPECT_THAT(Call<v1::ExplainResponse>(stub, &Stub::Explain, v1::ExplainRequest()).text(), HasSubstr("rank"));
    AsksTheRanks(stub, folder);
    struct stat place = {};
    EXPECT_EQ(stat(absl::StrCat(folder, "/ronda").c_str(), &place), 0);
    EXPECT_EQ(place.st_mode & 0777, 0700u) << "nobody else can enter";
    monitor.Signal(SIGTERM);
    EXPECT_EQ(monitor.Finish(), 0);
    EXPECT_FALSE(std::filesystem::exists(socket.substr(5)));
    std::filesystem::remove_all(folder);
  });
}

TEST(RondaMonitorTest, AnswersClientsOfGrpc) {
  ExpectRankProgramSucceeds("is_asked_over_grpc", 2, {.env = {{"MONITOR_TEST_FOLDER", TestFolder()}}});
}

// Proves knowledge of the secret as callers over a network do, with an HMAC-SHA256 of the monitor's nonce and the
// method.
v1::CallProof ProofFor(const std::unique_ptr<v1::MonitorService::Stub>& stub, const std::string& secret,
                       const std::string& method) {
  const auto challenge =
      Call<v1::MonitorChallengeResponse>(stub, &v1::MonitorService::Stub::Challenge, v1::MonitorChallengeRequest());
  v1::CallProof proof;
  proof.set_nonce(challenge.nonce());
  proof.set_proof(SecretProof(secret, {"ronda.v1.MonitorService", challenge.nonce(), method}));
  return proof;
}

// The ranks have the secret in their environment. The monitor gets it from them.
void IsAskedOverANetwork() {
  StepWhile([](const std::string& job) {
    using Stub = v1::MonitorService::Stub;
    MonitorProcess monitor({"--grpc-interface", "lo", "--token-file", WriteToken(), job},
                           {"/usr/bin/env", "-u", "RONDA_JOB_SECRET"});
    const std::string line = monitor.ReadLine("127.0.0.1:");
    EXPECT_THAT(line, HasSubstr(" serves ronda.v1.MonitorService over gRPC, for who proves the job's secret"));
    const auto stub = v1::MonitorService::NewStub(
        grpc::CreateChannel(line.substr(0, line.find(' ')), grpc::InsecureChannelCredentials()));
    v1::GetJobsRequest request;
    Call<v1::GetJobsResponse>(stub, &Stub::GetJobs, request, grpc::StatusCode::UNAUTHENTICATED);
    *request.mutable_proof() = ProofFor(stub, "wrong", "/ronda.v1.MonitorService/GetJobs");
    Call<v1::GetJobsResponse>(stub, &Stub::GetJobs, request, grpc::StatusCode::PERMISSION_DENIED);
    *request.mutable_proof() = ProofFor(stub, "f00d", "/ronda.v1.MonitorService/GetJobs");
    const auto shown = Call<v1::GetJobsResponse>(stub, &Stub::GetJobs, request);
    ASSERT_EQ(shown.jobs_size(), 1);
    EXPECT_EQ(shown.jobs(0).job(), job);
    EXPECT_EQ(shown.jobs(0).ranks_size(), 2);
    Call<v1::GetJobsResponse>(stub, &Stub::GetJobs, request, grpc::StatusCode::UNAUTHENTICATED);
    v1::ExplainRequest explain;
    *explain.mutable_proof() = ProofFor(stub, "f00d", "/ronda.v1.MonitorService/Explain");
    EXPECT_THAT(Call<v1::ExplainResponse>(stub, &Stub::Explain, explain).text(), HasSubstr("rank"));
    Call<v1::StopJobResponse>(stub, &Stub::StopJob, v1::StopJobRequest(), grpc::StatusCode::PERMISSION_DENIED);
    monitor.Signal(SIGTERM);
    EXPECT_EQ(monitor.Finish(), 0);
  });
}

TEST(RondaMonitorTest, AnswersOverANetworkThoseWhoProveTheSecret) {
  ExpectRankProgramSucceeds("is_asked_over_a_network", 2,
                            {.env = {{"MONITOR_TEST_FOLDER", TestFolder()}, {"RONDA_JOB_SECRET", "f00d"}}});
}

TEST(RondaMonitorTest, NetworkNeedsAJobAndASecret) {
  const std::vector<std::string> none = {"/usr/bin/env", "-u", "RONDA_JOB_SECRET"};
  EXPECT_THAT(Say({"--grpc-interface", "lo"}, 2), HasSubstr("--grpc-interface and --ask are about one JOB: name it"));
  EXPECT_THAT(Say({"--grpc-interface", "lo", "--token-file", WriteToken(), "--wait", "no-such-job"}, 1, none),
              HasSubstr("there is no secret of the job to prove"));
  const std::vector<std::string> with = {"/usr/bin/env", "RONDA_JOB_SECRET=f00d"};
  EXPECT_THAT(Say({"--ask", "127.0.0.1", "--token-file", WriteToken(), "--wait", "no-such-job"}, 1, with),
              HasSubstr("--ask takes HOST:PORT, and not '127.0.0.1'"));
}

TEST(RondaMonitorTest, SocketNeedsAFolderOfTheUsersOwn) {
  const std::string folder = TestFolder() + "/shared";
  const std::string token_file = WriteToken();
  std::filesystem::create_directories(folder + "/ronda");
  chmod((folder + "/ronda").c_str(), 0755);
  const std::vector<std::string> before = {"/usr/bin/env", absl::StrCat("XDG_RUNTIME_DIR=", folder)};
  EXPECT_THAT(Say({"--grpc", "--wait", "--token-file", token_file}, 1, before), HasSubstr("has mode 0755"));
  chmod((folder + "/ronda").c_str(), 0700);
  const std::string deep = folder + "/" + std::string(120, 'x');
  std::filesystem::create_directories(deep);
  EXPECT_THAT(Say({"--grpc", "--wait", "--token-file", token_file}, 1,
                  {"/usr/bin/env", absl::StrCat("XDG_RUNTIME_DIR=", deep)}),
              HasSubstr("set XDG_RUNTIME_DIR to a folder with a shorter name"));
}

// The ranks of this job run until the file "end" exists.
void StaysForAWhile() {
  init();
  const std::string folder = TestFolder();
  std::atomic<bool> done{false};
  if (rank() == 0) std::ofstream(folder + "/job") << std::getenv("RONDA_JOB_ID") << std::flush;
  std::thread waits([&] {
    EXPECT_TRUE(Await([&] { return std::filesystem::exists(folder + "/end"); }));
    done = true;
  });
  StepUntil(done);
  waits.join();
  shutdown();
}

TEST(RondaMonitorTest, EndsWithTheJobThatWasNamed) {
  const std::string token_file = WriteToken();
  const std::string folder = TestFolder();
  std::filesystem::remove(folder + "/end");
  std::filesystem::remove(folder + "/job");
  std::thread job([&] {
    ExpectRankProgramSucceeds("stays_for_a_while", 2, {.env = {{"MONITOR_TEST_FOLDER", folder}}});
  });
  std::string name;
  EXPECT_TRUE(Await([&] { return std::getline(std::ifstream(folder + "/job"), name) && name.size() > 4; }));
  MonitorProcess monitor({"--token-file", token_file, name});
  EXPECT_GT(monitor.ReadPort(), 0) << monitor.said();
  EXPECT_THAT(monitor.Get("/metrics"), HasSubstr(absl::StrCat("ronda_job_info{job_id=\"", name, "\"")));
  std::ofstream(folder + "/end") << "now";
  job.join();
  EXPECT_EQ(monitor.Finish(), 0);
}

// -- Who may ask --

class RondaMonitorAccessTest : public ::testing::Test {
 protected:
  // The monitor is waiting for a job that does not exist.
  MonitorProcess monitor_{{"--wait", "--token-file", WriteToken(), "no-such-job"}};
  void SetUp() override { ASSERT_GT(monitor_.ReadPort(), 0) << monitor_.said(); }
};

TEST_F(RondaMonitorAccessTest, IsForThoseWithTheTokenWhoUseItsName) {
  const std::string bearer = absl::StrCat("Authorization: Bearer ", kToken);
  for (const std::string path : {"/", "/metrics", "/api/v1/job", "/none"}) {
    EXPECT_THAT(monitor_.Get(path, {"Host: localhost"}),
                AllOf(StartsWith("HTTP/1.1 401 "), HasSubstr("the token is missing")));
    EXPECT_THAT(monitor_.Get(path, {"Host: localhost", "Authorization: Bearer 0123456789abcdef0123456789abcdeX"}),
                AllOf(StartsWith("HTTP/1.1 401 "), HasSubstr("the token is wrong")));
    EXPECT_THAT(monitor_.Get(path, {"Host: rebound.example", bearer}),
                AllOf(StartsWith("HTTP/1.1 403 "), HasSubstr("this is not the name of the monitor")));
  }
  EXPECT_THAT(monitor_.Get("/api/v1/job", {"Host: 127.0.0.1", bearer}),
              AllOf(StartsWith("HTTP/1.1 200 "), EndsWith("{\"jobs\":[]}")));
}

TEST_F(RondaMonitorAccessTest, EndsInOrderWithASignal) {
  monitor_.Signal(SIGINT);
  EXPECT_EQ(monitor_.Finish(), 0);
}

TEST(RondaMonitorFilesTest, TokenFileThatOthersMayReadIsRefused) {
  EXPECT_THAT(Say({"--token-file", WriteToken(0644)}, 1),
              AllOf(HasSubstr("has mode 0644"), HasSubstr("call chmod go= ")));
}

TEST(RondaMonitorFilesTest, AnotherUserIsRefused) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  if (access("/usr/bin/setpriv", X_OK) != 0) GTEST_SKIP() << "setpriv is not here: apt-get install util-linux";
  std::filesystem::permissions(TestFolder(), std::filesystem::perms::owner_all);
  const std::vector<std::string> as_nobody = {"/usr/bin/setpriv", "--reuid=65534", "--regid=65534", "--clear-groups",
                                              "--inh-caps=-all"};
  // The monitor runs as another user, who can access neither the file nor its folder.
  EXPECT_THAT(Say({"--token-file", WriteToken()}, 1, as_nobody), HasSubstr("cannot open the file with the token"));
}

TEST(RondaMonitorFilesTest, MakesItsTokenInTheUsersFolder) {
  WriteToken();
  const std::string folder = TestFolder();
  std::filesystem::remove_all(folder + "/ronda");
  MonitorProcess monitor({}, {"/usr/bin/env", absl::StrCat("XDG_RUNTIME_DIR=", folder)});
  ASSERT_GT(monitor.ReadPort(), 0) << monitor.said();
  const std::string path = folder + "/ronda/monitor.token";
  EXPECT_THAT(monitor.said(), EndsWith(absl::StrCat("the token is in ", path, "\n")));
  std::string token;
  std::getline(std::ifstream(path), token);
  EXPECT_THAT(monitor.Get("/api/v1/job", {"Host: localhost", absl::StrCat("Authorization: Bearer ", token)}),
              StartsWith("HTTP/1.1 200 "));
}

// -- The command line --

TEST(RondaMonitorCommandTest, SaysWhatIsWrong) {
  const std::string token_file = WriteToken();
  EXPECT_THAT(Say({"--token-file", token_file, "no-such-job"}, 1),
              HasSubstr("you run no job on this host that has the name or pid 'no-such-job' or an id that begins with "
                        "it; with --wait it may"));
  EXPECT_THAT(Say({"--port", "x"}, 2), AllOf(HasSubstr("--port"), HasSubstr("9464")));
  EXPECT_THAT(Say({"a", "b"}, 2), HasSubstr("one JOB at most"));
  EXPECT_THAT(Say({"--prot", "1"}, 2), HasSubstr("--port"));
  EXPECT_THAT(Say({"--token-file", token_file, "--interface", "nosuch0"}, 1), HasSubstr("nosuch0"));
}

TEST(RondaMonitorCommandTest, ExplainsItself) {
  EXPECT_THAT(Say({"--help"}, 0), AllOf(StartsWith("usage: ronda-monitor"), HasSubstr("--token-file FILE")));
  EXPECT_THAT(Say({"--version"}, 0), StartsWith("ronda-monitor "));
}

}  // namespace
}  // namespace ronda

int main(int argc, char** argv) {
  return ronda::testing::RankProgramMain(argc, argv,
                                         {{"sees_metrics_move", ronda::SeesMetricsMove},
                                          {"is_asked_over_grpc", ronda::IsAskedOverGrpc},
                                          {"is_asked_over_a_network", ronda::IsAskedOverANetwork},
                                          {"stays_for_a_while", ronda::StaysForAWhile}});
}
