// SPDX-License-Identifier: Apache-2.0

#include "runtime/collectives/nccl/nccl_library.h"

#include <dlfcn.h>
#include <glob.h>
#include <pwd.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "runtime/base/status_macros.h"

namespace ronda {
namespace {

constexpr const char* kFileName = "libnccl.so.2";
// Patterns of folders that may contain the library, but that the loader does not search.
constexpr const char* kToolkitFolders[] = {"/usr/local/cuda/lib64", "/usr/local/cuda/lib",
                                           "/opt/nvidia/hpc_sdk/Linux_x86_64/*/comm_libs/nccl/lib"};
constexpr const char* kPythonFolders[] = {"/usr/local/lib/python3*/*-packages", "/usr/lib/python3*/*-packages"};

std::string HomeFolder() {
  const passwd* const user = getpwuid(getuid());
  return user == nullptr || user->pw_dir == nullptr ? "" : user->pw_dir;
}

std::vector<std::string> FilesLike(const std::string& pattern) {
  glob_t found = {};
  std::vector<std::string> files;
  if (glob(pattern.c_str(), 0, nullptr, &found) == 0) files.assign(found.gl_pathv, found.gl_pathv + found.gl_pathc);
  globfree(&found);
  return files;
}

// The library that a pattern has found. nullptr: none, and `failures` lists the attempts.
struct Found {
  void* library = nullptr;
  std::string file;
};

Found Open(const std::string& pattern, std::vector<std::string>* failures) {
  // The loader resolves a plain name, and reports a path that does not exist.
  std::vector<std::string> files = FilesLike(pattern);
  const bool is_pattern = pattern.find('*') != std::string::npos;
  if (files.empty() && is_pattern) failures->push_back(absl::StrCat("no ", pattern));
  if (files.empty() && !is_pattern) files.push_back(pattern);
  for (const std::string& file : files) {
    if (void* const library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL)) return {library, file};
    failures->emplace_back(dlerror());
  }
  return {};
}

// Fills in a table of functions.
class Symbols {
 public:
  explicit Symbols(void* library) : library_(library) {}

  template <typename Function>
  void Need(const char* name, Function* function) {
    Find(name, function);
    if (*function == nullptr && missing_.empty()) missing_ = name;
  }

  template <typename Function>
  void Find(const char* name, Function* function) {
    *function = reinterpret_cast<Function>(dlsym(library_, name));
  }

  // Returns the name of the first required function that the library lacks; empty if it has all of them.
  const std::string& missing() const { return missing_; }

 private:
  void* const library_;
  std::string missing_;
};

// Fills in `nccl` for a library of this version. Returns the name of a required function that the library lacks; empty
// if it has all of them.
std::string FindFunctions(void* library, int version, NcclFunctions* nccl) {
  Symbols symbols(library);
  symbols.Need("ncclGetUniqueId", &nccl->GetUniqueId);
  symbols.Need("ncclCommInitRankConfig", &nccl->CommInitRankConfig);
  symbols.Need("ncclCommGetAsyncError", &nccl->CommGetAsyncError);
  symbols.Need("ncclCommFinalize", &nccl->CommFinalize);
  symbols.Need("ncclCommDestroy", &nccl->CommDestroy);
  symbols.Need("ncclCommAbort", &nccl->CommAbort);
  symbols.Need("ncclGetErrorString", &nccl->GetErrorString);
  symbols.Need("ncclGetLastError", &nccl->GetLastError);
  symbols.Need("ncclGroupStart", &nccl->GroupStart);
  symbols.Need("ncclGroupEnd", &nccl->GroupEnd);
  symbols.Need("ncclAllReduce", &nccl->AllReduce);
  symbols.Need("ncclReduce", &nccl->Reduce);
  symbols.Need("ncclBroadcast", &nccl->Broadcast);
  symbols.Need("ncclAllGather", &nccl->AllGather);
  symbols.Need("ncclReduceScatter", &nccl->ReduceScatter);
  symbols.Need("ncclRedOpCreatePreMulSum", &nccl->RedOpCreatePreMulSum);
  symbols.Need("ncclRedOpDestroy", &nccl->RedOpDestroy);
  symbols.Need("ncclSend", &nccl->Send);
  symbols.Need("ncclRecv", &nccl->Recv);
  symbols.Find("ncclCommSplit", &nccl->CommSplit);
  symbols.Find("ncclMemAlloc", &nccl->MemAlloc);
  symbols.Find("ncclMemFree", &nccl->MemFree);
  symbols.Find("ncclCommRegister", &nccl->CommRegister);
  symbols.Find("ncclCommDeregister", &nccl->CommDeregister);
  if (version >= kOldestWindows) {
    symbols.Find("ncclCommWindowRegister", &nccl->CommWindowRegister);
    symbols.Find("ncclCommWindowDeregister", &nccl->CommWindowDeregister);
  }
  return symbols.missing();
}

// Returns the path of the file that contains `symbol`.
std::string FileOf(const void* symbol, const std::string& otherwise) {
  Dl_info info;
  return dladdr(symbol, &info) != 0 && info.dli_fname != nullptr ? info.dli_fname : otherwise;
}

absl::StatusOr<NcclLibrary> Examine(void* library, const std::string& file) {
  NcclLibrary nccl = {.functions = {}, .path = file};
  Symbols symbols(library);
  symbols.Need("ncclGetVersion", &nccl.functions.GetVersion);
  if (!symbols.missing().empty()) return absl::FailedPreconditionError(absl::StrCat(file, " is not NCCL"));
  nccl.path = FileOf(reinterpret_cast<const void*>(nccl.functions.GetVersion), file);
  int version = 0;
  const NcclResult result = nccl.functions.GetVersion(&version);
  if (result != NcclResult::kSuccess) {
    return absl::FailedPreconditionError(
        absl::StrCat(nccl.path, " does not work: ncclGetVersion answers with error ", static_cast<int>(result)));
  }
  nccl.version = NcclVersionText(version);
  if (version < kOldestNccl) {
    return absl::FailedPreconditionError(absl::StrCat(nccl.path, " is NCCL ", nccl.version, ", and ",
                                                      NcclVersionText(kOldestNccl), " or a later one is needed"));
  }
  const std::string missing = FindFunctions(library, version, &nccl.functions);
  if (missing.empty()) return nccl;
  return absl::FailedPreconditionError(absl::StrCat(nccl.path, " (NCCL ", nccl.version, ") has no ", missing));
}

}  // namespace

std::vector<std::string> NcclPlaces(const std::string& path, const std::string& toolkit, const std::string& python) {
  if (!path.empty()) return {path};
  std::vector<std::string> patterns = {kFileName};
  if (!toolkit.empty()) {
    for (const char* folder : {"/lib64/", "/lib/"}) patterns.push_back(absl::StrCat(toolkit, folder, kFileName));
  }
  const std::string in_packages = absl::StrCat("/nvidia/nccl/lib/", kFileName);
  if (!python.empty()) {
    patterns.push_back(absl::StrCat(python, "/lib/python3*/site-packages", in_packages));
  }
  for (const char* folder : kToolkitFolders) patterns.push_back(absl::StrCat(folder, "/", kFileName));
  std::vector<std::string> folders(std::begin(kPythonFolders), std::end(kPythonFolders));
  folders.push_back(absl::StrCat(HomeFolder(), "/.local/lib/python3*/site-packages"));
  for (const std::string& folder : folders) patterns.push_back(absl::StrCat(folder, in_packages));
  return patterns;
}

std::string NcclVersionText(int version) {
  // 2.18.5 is 21805. Before version 2.9, numbers were shorter: 2.8.5 is 2805.
  const int major = version < 10000 ? version / 1000 : version / 10000;
  const int rest = version < 10000 ? version % 1000 : version % 10000;
  return absl::StrCat(major, ".", rest / 100, ".", rest % 100);
}

absl::StatusOr<std::shared_ptr<const NcclLibrary>> LoadNccl(const std::string& path, const std::string& toolkit,
                                                            const std::string& python) {
  std::vector<std::string> failures;
  for (const std::string& pattern : NcclPlaces(path, toolkit, python)) {
    const Found found = Open(pattern, &failures);
    if (found.library == nullptr) continue;
    RONDA_ASSIGN_OR_RETURN(NcclLibrary nccl, Examine(found.library, found.file));
    return std::make_shared<const NcclLibrary>(std::move(nccl));
  }
  return absl::NotFoundError(absl::StrCat("NCCL cannot be loaded (", absl::StrJoin(failures, "; "),
                                          "): install libnccl2, or let RONDA_NCCL_LIBRARY name the file"));
}

}  // namespace ronda
