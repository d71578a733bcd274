// SPDX-License-Identifier: Apache-2.0

#include <cstdlib>

#include "kernels/cuda/kernels.h"
#include "tests/kernels/cuda/runner.h"

namespace ronda::kernels::cuda {

std::string WhyNotHere() { return ""; }

void* AllocateShared(size_t bytes) { return std::malloc(bytes); }
void ReleaseShared(void* memory) { std::free(memory); }

int RunCall(const PackCall& call) { return HostPack(call); }
int RunCall(const UnpackCall& call) { return HostUnpack(call); }
int RunCall(const ReduceCall& call) { return HostReduce(call); }
int RunCall(const NonFiniteCall& call) { return HostFindNonFinite(call); }
int RunCall(const AddScaledCall& call) { return HostAddScaled(call); }
int RunCall(const DotsCall& call) { return HostDots(call); }
int RunCall(const CombineCall& call) { return HostCombine(call); }

}  // namespace ronda::kernels::cuda
