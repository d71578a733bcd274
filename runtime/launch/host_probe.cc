#include "runtime/launch/host_probe.h"

#include <sched.h>
#include <sys/statvfs.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include <climits>
#include <filesystem>
#include <iostream>
#include <map>
#include <memory>
#include <system_error>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "runtime/base/status_macros.h"
#include "runtime/base/version.h"
#include "runtime/bootstrap/network_interface.h"
#include "runtime/collectives/nccl/nccl_library.h"
#include "runtime/launch/echo.h"
#include "runtime/launch/gpu_libraries.h"
#include "runtime/launch/mpirun_version.h"

namespace ronda {
namespace {

constexpr absl::Duration kConnectPatience = absl::Seconds(2);

std::string OwnPath() {
  char path[PATH_MAX] = {};
  return readlink("/proc/self/exe", path, sizeof(path) - 1) < 0 ? "" : path;
}

int CountCores() {
  cpu_set_t cores;
  return sched_getaffinity(0, sizeof(cores), &cores) == 0 ? CPU_COUNT(&cores) : 1;
}

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
  struct statvfs shm = {};
  if (statvfs("/dev/shm", &shm) != 0) return;
  (*facts)[fact::kShmSize] = absl::StrCat(uint64_t{shm.f_blocks} * shm.f_frsize);
  (*facts)[fact::kShmFree] = absl::StrCat(uint64_t{shm.f_bavail} * shm.f_frsize);
}

// "8 x NVIDIA H200"
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

// Starts answering others, and notes where.
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
  const absl::Status status = TryEcho(own_address, words[1], port, kConnectPatience);
  return status.ok() ? "ok" : std::string(status.message());
}

}  // namespace

HostFacts LocalFacts() {
  HostFacts facts = {{fact::kVersion, kVersion},
                     {fact::kProgram, OwnPath()},
                     {fact::kCores, absl::StrCat(CountCores())},
                     {fact::kNumaNodes, absl::StrCat(CountNumaNodes())}};
  AddMemory(&facts);
  AddGpus(&facts);
  if (const auto mpi = MpirunVersion(); mpi.ok()) facts[fact::kMpi] = ShortMpiVersion(*mpi);
  return facts;
}

std::string ShortMpiVersion(absl::string_view text) {
  const std::vector<absl::string_view> lines = absl::StrSplit(text, '\n');
  absl::string_view first = lines.front();
  if (absl::ConsumePrefix(&first, "mpirun (Open MPI) ")) return absl::StrCat("Open MPI ", first);
  if (!absl::StartsWith(first, "HYDRA")) return std::string(first);
  for (absl::string_view line : lines) {
    line = absl::StripAsciiWhitespace(line);
    if (absl::ConsumePrefix(&line, "Version:")) return absl::StrCat("MPICH ", absl::StripAsciiWhitespace(line));
  }
  return "MPICH";
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
