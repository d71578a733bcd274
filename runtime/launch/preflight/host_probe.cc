#include "runtime/launch/preflight/host_probe.h"

#include <dlfcn.h>
#include <sys/statvfs.h>
#include <sys/sysinfo.h>

#include <array>
#include <filesystem>
#include <iostream>
#include <map>
#include <memory>
#include <system_error>
#include <utility>

#include "absl/status/status.h"
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
#include "runtime/collectives/nccl/nccl_library.h"
#include "runtime/launch/options/local_host.h"
#include "runtime/launch/plan/mpirun_command.h"
#include "runtime/launch/preflight/echo.h"
#include "runtime/net/endpoint.h"

namespace ronda {
namespace {

// Never closed: both libraries leave threads behind.
absl::StatusOr<void*> Load(const char* library) {
  void* const handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
  if (handle != nullptr) return handle;
  const char* const reason = dlerror();
  return absl::NotFoundError(reason == nullptr ? library : reason);
}

absl::Status Broken(const char* function, int error) {
  return absl::FailedPreconditionError(absl::StrCat(function, " answers with error ", error));
}

// Calls a function that returns 0 where it goes well.
template <typename... Parameters, typename... Arguments>
absl::Status Ask(void* library, const char* function, int (*)(Parameters...), Arguments... arguments) {
  const auto entry = reinterpret_cast<int (*)(Parameters...)>(dlsym(library, function));
  if (entry == nullptr) return absl::FailedPreconditionError(absl::StrCat("there is no ", function));
  const int error = entry(arguments...);
  return error == 0 ? absl::OkStatus() : Broken(function, error);
}

// The signatures that cuda.h and nccl.h give.
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

constexpr absl::Duration kConnectPatience = absl::Seconds(2);

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
  AddMemory(&facts);
  AddGpus(&facts);
  if (const auto mpi = MpirunVersion(); mpi.ok()) facts[fact::kMpi] = ShortMpiVersion(*mpi);
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
