// SPDX-License-Identifier: Apache-2.0

// libnvtx_recorder.so is a tool that records the NVTX ranges of this process. NVTX loads the library from the path in
// NVTX_INJECTION64_PATH.
#include <nvtx3/nvToolsExt.h>

#include <string>

#include "runtime/base/mutex.h"
#include "tests/testing/nvtx_recorder/nvtx_recorder.h"

namespace {

struct Notes {
  ronda::Mutex mu;
  std::string text ABSL_GUARDED_BY(mu);
};

Notes& TheNotes() {
  static auto* const notes = new Notes;  // never destroyed: ranges may end while the process exits
  return *notes;
}

void Record(const std::string& line) {
  Notes& notes = TheNotes();
  const ronda::MutexLock lock(&notes.mu);
  notes.text += line + "\n";
}

// The tool chooses the handle of a domain. This tool uses a pointer to the domain's name.
nvtxDomainHandle_t NVTX_API CreateDomain(const char* name) {
  return reinterpret_cast<nvtxDomainHandle_t>(new std::string(name));
}

int NVTX_API Push(nvtxDomainHandle_t domain, const nvtxEventAttributes_t* attributes) {
  const auto* const name = reinterpret_cast<const std::string*>(domain);
  Record((name == nullptr ? std::string("no domain") : *name) + ": " + attributes->message.ascii);
  return 0;
}

int NVTX_API Pop(nvtxDomainHandle_t /*domain*/) {
  Record("end");
  return 0;
}

template <typename Function>
void Replace(NvtxFunctionTable functions, NvtxCallbackIdCore2 id, Function function) {
  *functions[id] = reinterpret_cast<NvtxFunctionPointer>(function);
}

}  // namespace

extern "C" {

__attribute__((visibility("default"))) int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t find) {
  const auto* const callbacks = static_cast<const NvtxExportTableCallbacks*>(find(NVTX_ETID_CALLBACKS));
  NvtxFunctionTable functions = nullptr;
  unsigned int count = 0;
  if (callbacks == nullptr || callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &functions, &count) == 0 ||
      count <= NVTX_CBID_CORE2_DomainCreateA) {
    return 0;
  }
  Replace(functions, NVTX_CBID_CORE2_DomainCreateA, CreateDomain);
  Replace(functions, NVTX_CBID_CORE2_DomainRangePushEx, Push);
  Replace(functions, NVTX_CBID_CORE2_DomainRangePop, Pop);
  return 1;
}

__attribute__((visibility("default"))) void nvtx_recorder_take(char* text, size_t size) {
  Notes& notes = TheNotes();
  const ronda::MutexLock lock(&notes.mu);
  const size_t copied = notes.text.copy(text, size - 1);
  text[copied] = '\0';
  notes.text.clear();
}
}
