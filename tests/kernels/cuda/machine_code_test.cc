// SPDX-License-Identifier: Apache-2.0

// Tests the machine code of the kernels, which NVIDIA's cuobjdump extracts from the plugin. Even without a GPU, it
// shows whether a kernel would be slow, or wrong in a way that a run on the CPU does not show.
#include <cxxabi.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <typeinfo>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "kernels/cuda/block.h"
#include "kernels/cuda/gradients.h"
#include "kernels/cuda/map_launches.h"
#include "kernels/cuda/reduce.h"

namespace ronda::kernels::cuda {
namespace {

constexpr char kPlugin[] = "runtime/cuda/libronda_cuda.so";
// The number of registers of a multiprocessor, on all GPUs for which the plugin has machine code.
constexpr int kRegisters = 65536;

std::string Demangled(const std::string& name) {
  const std::unique_ptr<char, decltype(&std::free)> text(abi::__cxa_demangle(name.c_str(), nullptr, nullptr, nullptr),
                                                         &std::free);
  return text == nullptr ? name : text.get();
}

// Returns the body of a kernel, for example "MapBody<Keep<unsigned int> >" for "void
// ronda::kernels::cuda::BodyKernel<...>(...)".
std::string BodyOf(const std::string& kernel) {
  const std::string name = Demangled(kernel);
  const std::string begin = "BodyKernel<";
  const size_t from = name.find(begin) + begin.size();
  return std::string(absl::StripSuffix(name.substr(from, name.find(">(", from) - from), " "));
}

// Returns the text between `key` and the next character in `ends`, or "" if the line does not contain `key`.
std::string After(absl::string_view line, absl::string_view key, absl::string_view ends) {
  const size_t at = line.find(key);
  if (at == absl::string_view::npos) return "";
  const absl::string_view rest = line.substr(at + key.size());
  return std::string(rest.substr(0, rest.find_first_of(ends)));
}

// Adds nvcc's folder to the PATH of `command`, because cuobjdump may be there. cuobjdump may also be elsewhere, or
// missing, because not every package of the toolkit contains it.
std::string Command(const std::string& command) {
  const char* const nvcc = std::getenv("NVCC");
  return absl::StrCat("PATH=$PATH:$(dirname '", nvcc == nullptr ? "" : nvcc, "'); ", command);
}

bool HasCuobjdump() { return std::system(Command("command -v cuobjdump > /dev/null").c_str()) == 0; }

// Calls `take` with every line that cuobjdump prints.
template <typename Take>
void ReadCode(const std::string& arguments, const Take& take) {
  FILE* const output = popen(Command(absl::StrCat("cuobjdump ", arguments, " ", kPlugin)).c_str(), "r");
  ASSERT_NE(output, nullptr);
  char* line = nullptr;
  size_t capacity = 0;
  while (getline(&line, &capacity, output) >= 0) take(absl::string_view(line));
  std::free(line);
  EXPECT_EQ(pclose(output), 0);
}

struct Usage {
  int registers = 0;
  int stack = 0;
  int local = 0;
};

int Number(const std::string& text) {
  int number = -1;
  EXPECT_TRUE(absl::SimpleAtoi(text, &number)) << text;
  return number;
}

// Returns the resource usage of each kernel body on each GPU, by GPU and body.
std::map<std::string, std::map<std::string, Usage>> ReadUsage() {
  std::map<std::string, std::map<std::string, Usage>> usage;
  std::string gpu;
  std::string body;
  ReadCode("-res-usage", [&](absl::string_view line) {
    if (const std::string found = After(line, "arch = ", "\n"); !found.empty()) gpu = found;
    if (const std::string found = After(line, "Function ", ":"); !found.empty()) body = BodyOf(found);
    if (!absl::StrContains(line, "REG:")) return;
    usage[gpu][body] = {.registers = Number(After(line, "REG:", " ")),
                        .stack = Number(After(line, "STACK:", " ")),
                        .local = Number(After(line, "LOCAL:", " "))};
  });
  return usage;
}

struct Accesses {
  int wide_loads = 0;
  int wide_stores = 0;
  int byte_loads = 0;
  int byte_stores = 0;
};

std::map<std::string, Accesses> ReadAccesses(const std::string& gpu) {
  std::map<std::string, Accesses> accesses;
  Accesses* current = nullptr;
  ReadCode(absl::StrCat("-sass -arch ", gpu), [&](absl::string_view line) {
    if (const std::string found = After(line, "Function : ", "\n"); !found.empty()) current = &accesses[BodyOf(found)];
    if (current == nullptr) return;
    current->wide_loads += absl::StrContains(line, "LDG.E.128");
    current->wide_stores += absl::StrContains(line, "STG.E.128");
    current->byte_loads += absl::StrContains(line, "LDG.E.U8") || absl::StrContains(line, "LDG.E.S8");
    current->byte_stores += absl::StrContains(line, "STG.E.U8");
  });
  return accesses;
}

// Returns whether the name of the body, without the namespace, begins with `beginning`.
bool Is(absl::string_view body, absl::string_view beginning) {
  return absl::StartsWith(body, absl::StrCat("ronda::kernels::cuda::", beginning));
}

// A launcher that only records which kernel bodies it is asked to launch.
struct Note {
  template <class Body>
  int operator()(const Body& /*body*/, uint32_t /*blocks*/) const {
    bodies->insert(Demangled(typeid(Body).name()));
    return 0;
  }

  std::set<std::string>* bodies;
};

class MachineCodeTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!HasCuobjdump()) GTEST_SKIP() << "there is no cuobjdump (nvidia-cuda-cuobjdump)";
  }
};

// Every kernel must be loaded in advance, because otherwise its first launch loads it in the middle of a collective.
TEST_F(MachineCodeTest, EveryKernelIsLoadedAheadOnEveryGpu) {
  std::set<std::string> loaded;
  LaunchEveryMap(Note{&loaded});
  LaunchEveryReduce(Note{&loaded});
  LaunchEveryGradient(Note{&loaded});
  const auto usage = ReadUsage();
  ASSERT_FALSE(usage.empty());
  for (const auto& [gpu, bodies] : usage) {
    std::set<std::string> there;
    for (const auto& [body, unused] : bodies) there.insert(body);
    EXPECT_THAT(there, ::testing::ContainerEq(loaded)) << gpu;
  }
}

// A kernel with too few registers spills values to memory, which costs bandwidth. A launch that needs more memory for
// spilled values than any earlier one also waits for the device.
TEST_F(MachineCodeTest, KernelsKeepAllVariablesInRegisters) {
  for (const auto& [gpu, bodies] : ReadUsage()) {
    for (const auto& [body, usage] : bodies) {
      EXPECT_EQ(usage.stack, 0) << gpu << ", " << body;
      EXPECT_EQ(usage.local, 0) << gpu << ", " << body;
    }
  }
}

// Returns how many blocks of the kernel body must fit into a multiprocessor at the same time (kBlocksAtOnce).
int BlocksAtOnceOf(absl::string_view body) {
  for (const absl::string_view narrow : {"<signed char>", "<unsigned char>", "<short>", "<unsigned short>"}) {
    if (Is(body, absl::StrCat("ReduceBody<ronda::kernels::cuda::WideArithmetic", narrow))) return 1;
  }
  for (const absl::string_view large :
       {"AddBody", "DecodeBody", "EncodeBody", "MapBody<ronda::kernels::cuda::NarrowFloats",
        "MapBody<ronda::kernels::cuda::ScaleIntegers"}) {
    if (Is(body, large)) return kBlocksAtOnceIfLarge;
  }
  return kBlocksAtOnceIfSmall;
}

// With too few threads at a time, the memory is idle whenever all of them wait.
TEST_F(MachineCodeTest, RegistersLeaveRoomForSeveralBlocks) {
  for (const auto& [gpu, bodies] : ReadUsage()) {
    for (const auto& [body, usage] : bodies) {
      const int allocated = (usage.registers + 7) / 8 * 8;  // in groups of eight
      EXPECT_GE(kRegisters / (allocated * kThreads), BlocksAtOnceOf(body)) << gpu << ", " << body;
    }
  }
}

bool IsOfBytes(absl::string_view body) { return absl::StrContains(body, "char") || absl::StrContains(body, "Bool"); }

void ExpectWideAccesses(const std::string& body, const Accesses& accesses) {
  if (Is(body, "MapBody")) {
    // The limit applies to the side with the wider elements, loads or stores.
    EXPECT_GE(std::max(accesses.wide_loads, accesses.wide_stores), IsOfBytes(body) ? 1 : kAccessesInFlight);
  } else if (Is(body, "ReduceBody<ronda::kernels::cuda::FloatArithmetic")) {
    EXPECT_GT(accesses.wide_loads, kAccessesInFlight);
    EXPECT_GE(accesses.wide_stores, 1);
  } else if (Is(body, "ReduceBody<")) {
    EXPECT_GE(accesses.wide_loads, 2);
    EXPECT_GE(accesses.wide_stores, 1);
  } else if (Is(body, "AddBody") || Is(body, "FindNonFinite")) {
    EXPECT_GE(accesses.wide_loads, kAccessesInFlight);
  }
}

// Expects that the kernel body also loads single bytes, and stores single bytes if it stores elements, as it must for
// unaligned elements. Checks only the four kinds of bodies below, and not those for one-byte elements, which always
// access single bytes. Returns false if it did not check the body.
bool ExpectAccessesByBytes(const std::string& body, const Accesses& accesses) {
  const bool stores = Is(body, "ReduceBody<") || Is(body, "AddBody");
  if (IsOfBytes(body) || !(stores || Is(body, "FindNonFinite") || Is(body, "DotsBody"))) return false;
  EXPECT_GE(accesses.byte_loads, 2);
  EXPECT_GE(accesses.byte_stores, stores ? 2 : 0);
  return true;
}

// The parameter is a GPU. There is one for each PTX that machine code is generated from.
class AccessesTest : public MachineCodeTest, public ::testing::WithParamInterface<const char*> {};

// nvcc once merged the loads of an element's bytes into one load of the whole element, for which the device reports an
// error if the element is not aligned.
TEST_P(AccessesTest, SixteenBytesAreMovedAtATimeAndSingleOnesWhereElementsAreNotAligned) {
  int by_bytes = 0;
  for (const auto& [body, accesses] : ReadAccesses(GetParam())) {
    SCOPED_TRACE(body);
    ExpectWideAccesses(body, accesses);
    if (ExpectAccessesByBytes(body, accesses)) ++by_bytes;
  }
  EXPECT_GT(by_bytes, 10);
}

INSTANTIATE_TEST_SUITE_P(Gpus, AccessesTest, ::testing::Values("sm_75", "sm_90"),
                         [](const auto& gpu) { return std::string(gpu.param); });

}  // namespace
}  // namespace ronda::kernels::cuda
