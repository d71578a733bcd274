// SPDX-License-Identifier: Apache-2.0

// Launches Ronda's kernels (kernels/cuda/kernels.h) on the fake devices, which run kernels compiled for the host. In
// tests, this file replaces the plugin's real launches.
#include "kernels/cuda/kernels.h"
#include "tests/testing/fake_cudart/fake_device.h"

namespace ronda::kernels::cuda {
namespace {

const ronda_cuda_plugin& Table() { return *testing::FakeDevices::Get().table; }

}  // namespace

int DevicePack(const PackCall& call, void* stream) { return Table().pack(&call, stream); }
int DeviceUnpack(const UnpackCall& call, void* stream) { return Table().unpack(&call, stream); }
int DeviceReduce(const ReduceCall& call, void* stream) { return Table().reduce(&call, stream); }
int DeviceFindNonFinite(const NonFiniteCall& call, void* stream) { return Table().find_non_finite(&call, stream); }
int DeviceAddScaled(const AddScaledCall& call, void* stream) { return Table().add_scaled(&call, stream); }
int DeviceDots(const DotsCall& call, void* stream) { return Table().adasum_dots(&call, stream); }
int DeviceCombine(const CombineCall& call, void* stream) { return Table().adasum_combine(&call, stream); }

int LoadMapKernels() { return Table().prepare_device(); }
int LoadReduceKernels() { return Table().prepare_device(); }
int LoadGradientKernels() { return Table().prepare_device(); }

}  // namespace ronda::kernels::cuda
