#include "runtime/launch/gpu_libraries.h"

#include <dlfcn.h>

#include <array>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/status_macros.h"

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

}  // namespace ronda
