// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_TESTS_TESTING_NVTX_RECORDER_NVTX_RECORDER_H_
#define RONDA_TESTS_TESTING_NVTX_RECORDER_NVTX_RECORDER_H_

#include <cstddef>

namespace ronda::testing {

// The path at which tests find libnvtx_recorder.so. NVTX_INJECTION64_PATH must be set to this path before the process
// begins its first range.
inline constexpr const char* kNvtxRecorderPath = "tests/testing/nvtx_recorder/libnvtx_recorder.so";

// The name of a function in the library. It writes the events since its last call into `text`, one per line: "<domain>:
// <range>" when a range begins, and "end" when a range ends.
inline constexpr const char* kNvtxRecorderTake = "nvtx_recorder_take";
using NvtxRecorderTake = void (*)(char* text, size_t size);

}  // namespace ronda::testing

#endif  // RONDA_TESTS_TESTING_NVTX_RECORDER_NVTX_RECORDER_H_
