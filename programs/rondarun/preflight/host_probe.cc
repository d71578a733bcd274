// SPDX-License-Identifier: Apache-2.0

#include "programs/rondarun/preflight/host_probe.h"

#include <dlfcn.h>
#include <netdb.h>
#include <sys/socket.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <map>
#include <memory>
#include <system_error>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "programs/options/local_host.h"
#include "programs/rondarun/plan/mpirun_command.h"
#include "programs/rondarun/preflight/build_report.h"
#include "runtime/base/clock.h"
#include "runtime/base/environment.h"
#include "runtime/base/poll.h"
#include "runtime/base/status_macros.h"
#include "runtime/base/version.h"
#include "runtime/collectives/nccl/nccl_library.h"
#include "runtime/net/endpoint.h"

namespace ronda {
namespace {

constexpr char kGreeting[] = "ronda --check";
constexpr absl::Duration kServerTimeout = absl::Seconds(2);  // with a caller that connects and sends nothing

struct FreeAddresses {
  void operator()(addrinfo* addresses) const { freeaddrinfo(addresses); }
};
using Addresses = std::unique_ptr<addrinfo, FreeAddresses>;

absl::StatusOr<Addresses> Numeric(const std::string& address, int port) {
  addrinfo hints = {};
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(address.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (error != 0) return absl::InvalidArgumentError(absl::StrCat(address, ": ", gai_strerror(error)));
  return Addresses(found);
}

absl::Status SystemError(const std::string& what) {
  return absl::UnavailableError(absl::StrCat(what, ": ", strerror(errno)));
}

// Waits until `fd` is ready for `events`.
absl::Status Await(int fd, short events, absl::Time deadline) {
  pollfd ready = {.fd = fd, .events = events, .revents = 0};
  for (;;) {
    const absl::Duration left = deadline - SteadyNow();
    if (left <= absl::ZeroDuration()) return absl::DeadlineExceededError("no answer");
    RONDA_ASSIGN_OR_RETURN(const int count, PollDescriptors({&ready, 1}, left));
    if (count > 0) return absl::OkStatus();
  }
}

// Reads sizeof(kGreeting) bytes, or fewer if the other side closes the connection.
absl::StatusOr<std::string> ReadGreeting(int fd, absl::Time deadline) {
  std::array<char, sizeof(kGreeting)> buffer;
  std::string text;
  while (text.size() < buffer.size()) {
    RONDA_RETURN_IF_ERROR(Await(fd, POLLIN, deadline));
    const ssize_t count = recv(fd, buffer.data(), buffer.size() - text.size(), MSG_DONTWAIT);
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (count < 0) return SystemError("connection lost");
    if (count == 0) break;
    text.append(buffer.data(), static_cast<size_t>(count));
  }
  return text;
}

void Answer(int fd) {
  const absl::StatusOr<std::string> text = ReadGreeting(fd, SteadyNow() + kServerTimeout);
  // This cannot block, because the few bytes fit into the empty buffer of a new connection. A caller that has closed
  // the connection needs no answer.
  if (text.ok() && send(fd, text->data(), text->size(), MSG_NOSIGNAL | MSG_DONTWAIT) < 0) return;
}

absl::Status Connect(int fd, const addrinfo& to, absl::Time deadline) {
  if (connect(fd, to.ai_addr, to.ai_addrlen) == 0) return absl::OkStatus();
  if (errno != EINPROGRESS) return SystemError("cannot connect");
  RONDA_RETURN_IF_ERROR(Await(fd, POLLOUT, deadline));
  socklen_t size = sizeof(errno);
  if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &errno, &size) == 0 && errno == 0) return absl::OkStatus();
  return SystemError("cannot connect");
}

// The library is never closed, because the CUDA and NCCL libraries leave threads running.
absl::StatusOr<void*> Load(const char* library) {
  void* const handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
  if (handle != nullptr) return handle;
  const char* const reason = dlerror();
  return absl::NotFoundError(reason == nullptr ? library : reason);
}

absl::Status Broken(const char* function, int error) {
  return absl::FailedPreconditionError(absl::StrCat(function, " answers with error ", error));
}

// Calls a function that returns 0 on success.
template <typename... Parameters, typename... Arguments>
absl::Status Ask(void* library, const char* function, int (*)(Parameters...), Arguments... arguments) {
  const auto entry = reinterpret_cast<int (*)(Parameters...)>(dlsym(library, function));
  if (entry == nullptr) return absl::FailedPreconditionError(absl::StrCat("there is no ", function));
  const int error = entry(arguments...);
  return error == 0 ? absl::OkStatus() : Broken(function, error);
}

// The types of functions that are declared in cuda.h and nccl.h.
constexpr int (*kTakesFlags)(unsigned) = nullptr;
constexpr int (*kWritesNumber)(int*) = nullptr;
constexpr int (*kWritesNumberOf)(int*, int) = nullptr;
constexpr int (*kWritesName)(char*, int, int) = nullptr;

absl::StatusOr<std::string> ModelOf(void* library, int ordinal) {
  int device = 0;
  RONDA_RETURN_IF_ERROR(Ask(library, "cuDeviceGet", kWritesNumberOf, &device, ordinal));
  std::array<char, 128> name = {};
  RONDA_RETURN_IF_ERROR(
      Ask(library, "cuDeviceGetName", kWritesName, name.data(), static_cast<int>(name.size()) - 1, device));
  return std::string(name.data());
}

constexpr absl::Duration kConnectTimeout = absl::Seconds(2);

int CountNumaNodes() {
  int count = 0;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/sys/devices/system/node", error)) {
    int number = 0;
    const std::string name = entry.path().filename();
    absl::string_view text = name;
    if (absl::ConsumePrefix(&text, "node") && absl::SimpleAtoi(text, &number)) ++count;
  }
  return count;
}

void AddMemory(HostFacts* facts) {
  struct sysinfo info = {};
  if (sysinfo(&info) == 0) (*facts)[fact::kMemory] = absl::StrCat(uint64_t{info.totalram} * info.mem_unit);
}

// Returns a text such as "8 x NVIDIA H200".
std::string CountModels(const std::vector<std::string>& models) {
  std::map<std::string, int> counts;
  for (const std::string& model : models) ++counts[model];
  return absl::StrJoin(counts, ", ", [](std::string* text, const auto& entry) {
    absl::StrAppend(text, entry.second, " x ", entry.first);
  });
}

void AddGpus(HostFacts* facts) {
  if (const auto driver = FindGpuDriver(); driver.ok()) {
    (*facts)[fact::kCuda] = driver->cuda_version;
    if (!driver->models.empty()) (*facts)[fact::kGpus] = CountModels(driver->models);
  }
  if (const auto nccl = LoadNccl(""); nccl.ok()) (*facts)[fact::kNccl] = (*nccl)->version;
}

// Adds the facts about MPI, and about missing parts that a job on several hosts needs.
void AddPlugins(HostFacts* facts) {
  const EnvironmentReader environment = ProcessEnvironment();
  const auto hosts = FindHostsPlugin(environment("RONDA_HOSTS_PLUGIN").value_or(""));
  if (!hosts.ok()) (*facts)[fact::kNoHostsPlugin] = std::string(hosts.status().message());
  const auto version = MpirunVersion();
  if (!version.ok()) return;
  (*facts)[fact::kMpi] = ShortMpiVersion(*version);
  const auto mpirun = DetectMpirun(*version);
  const absl::Status mpi =
      mpirun.ok() ? FindMpiPlugin(*mpirun, environment("RONDA_MPI_PLUGIN").value_or("")).status() : mpirun.status();
  if (!mpi.ok()) (*facts)[fact::kNoMpiPlugin] = std::string(mpi.message());
}

// Starts to answer probes from other hosts, and adds the address on which it listens to the facts.
absl::StatusOr<std::unique_ptr<EchoServer>> AddAddress(const std::vector<std::string>& interfaces, HostFacts* facts) {
  RONDA_ASSIGN_OR_RETURN(const Endpoint endpoint, ChooseAddress(InterfaceAddresses(), interfaces));
  RONDA_ASSIGN_OR_RETURN(std::unique_ptr<EchoServer> server, EchoServer::Listen(endpoint.address));
  (*facts)[fact::kAddress] = endpoint.address;
  (*facts)[fact::kPort] = absl::StrCat(server->port());
  return server;
}

std::string AnswerTo(const std::string& question, const std::string& own_address) {
  if (question == "clock") return absl::StrCat(absl::GetCurrentTimeNanos());
  const std::vector<std::string> words = absl::StrSplit(question, ' ');
  int port = 0;
  if (words.size() != 3 || words[0] != "connect" || !absl::SimpleAtoi(words[2], &port)) return "unknown question";
  const absl::Status status = TryEcho(own_address, words[1], port, kConnectTimeout);
  return status.ok() ? "ok" : std::string(status.message());
}

}  // namespace

absl::StatusOr<std::unique_ptr<EchoServer>> EchoServer::Listen(const std::string& address) {
  RONDA_ASSIGN_OR_RETURN(const Addresses at, Numeric(address, 0));
  UniqueFd fd(socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_storage bound = {};
  socklen_t size = sizeof(bound);
  if (!fd.valid() || bind(fd.get(), at->ai_addr, at->ai_addrlen) != 0 || listen(fd.get(), SOMAXCONN) != 0 ||
      getsockname(fd.get(), reinterpret_cast<sockaddr*>(&bound), &size) != 0) {
    return absl::FailedPreconditionError(absl::StrCat("cannot listen on ", address, ": ", strerror(errno)));
  }
  std::array<char, NI_MAXSERV> service = {};
  getnameinfo(reinterpret_cast<sockaddr*>(&bound), size, nullptr, 0, service.data(), service.size(), NI_NUMERICSERV);
  return std::unique_ptr<EchoServer>(new EchoServer(std::move(fd), std::atoi(service.data())));
}

EchoServer::EchoServer(UniqueFd listening, int port)
    : listening_(std::move(listening)), port_(port), thread_([this] { Serve(); }) {}

EchoServer::~EchoServer() {
  shutdown(listening_.get(), SHUT_RDWR);
  thread_.join();
}

void EchoServer::Serve() const {
  for (;;) {
    const UniqueFd connection(accept4(listening_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (connection.valid()) {
      Answer(connection.get());
    } else if (errno != EINTR && errno != ECONNABORTED) {
      return;  // the destructor's shutdown()
    }
  }
}

absl::Status TryEcho(const std::string& from, const std::string& to, int port, absl::Duration timeout) {
  const absl::Time deadline = SteadyNow() + timeout;
  RONDA_ASSIGN_OR_RETURN(const Addresses source, Numeric(from, 0));
  RONDA_ASSIGN_OR_RETURN(const Addresses target, Numeric(to, port));
  const UniqueFd fd(socket(target->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return SystemError("no socket");
  if (bind(fd.get(), source->ai_addr, source->ai_addrlen) != 0) return SystemError(absl::StrCat("cannot use ", from));
  RONDA_RETURN_IF_ERROR(Connect(fd.get(), *target, deadline));
  if (send(fd.get(), kGreeting, sizeof(kGreeting), MSG_NOSIGNAL) < 0) return SystemError("connection lost");
  RONDA_ASSIGN_OR_RETURN(const std::string answer, ReadGreeting(fd.get(), deadline));
  if (answer != std::string(kGreeting, sizeof(kGreeting))) return absl::UnavailableError("somebody else answers");
  return absl::OkStatus();
}

absl::StatusOr<GpuDriver> FindGpuDriver() {
  RONDA_ASSIGN_OR_RETURN(void* const library, Load("libcuda.so.1"));
  RONDA_RETURN_IF_ERROR(Ask(library, "cuInit", kTakesFlags, 0u));
  int version = 0, count = 0;
  RONDA_RETURN_IF_ERROR(Ask(library, "cuDriverGetVersion", kWritesNumber, &version));
  RONDA_RETURN_IF_ERROR(Ask(library, "cuDeviceGetCount", kWritesNumber, &count));
  GpuDriver driver{.cuda_version = absl::StrCat(version / 1000, ".", version % 1000 / 10)};
  for (int i = 0; i < count; ++i) {
    RONDA_ASSIGN_OR_RETURN(std::string model, ModelOf(library, i));
    driver.models.push_back(std::move(model));
  }
  return driver;
}

HostFacts LocalFacts() {
  HostFacts facts = {{fact::kVersion, kVersion},
                     {fact::kProgram, ProgramPath()},
                     {fact::kCores, absl::StrCat(CountCores())},
                     {fact::kNumaNodes, absl::StrCat(CountNumaNodes())}};
  AddPlugins(&facts);  // this forks, so it comes first: a driver that AddGpus loads has threads
  AddMemory(&facts);
  AddGpus(&facts);
  return facts;
}

int RunProbe(const std::vector<std::string>& interfaces) {
  HostFacts facts = LocalFacts();
  const auto server = AddAddress(interfaces, &facts);
  if (!server.ok()) facts[fact::kNoAddress] = std::string(server.status().message());
  std::cout << FormatFacts(facts) << "." << std::endl;
  for (std::string question; std::getline(std::cin, question);) {
    std::cout << AnswerTo(question, facts[fact::kAddress]) << std::endl;
  }
  return 0;
}

}  // namespace ronda
