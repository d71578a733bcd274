// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_TESTS_TESTING_NVTX_RECORDER_NVTX_RECORDER_H_
#define RONDA_TESTS_TESTING_NVTX_RECORDER_NVTX_RECORDER_H_

#include <cstddef>

namespace ronda::testing {

// The path at which tests find libnvtx_recorder.so. NVTX_INJECTION64_PATH must have this path before the process begins
// its first range.
inline constexpr const char* kNvtxRecorderPath = "tests/testing/nvtx_recorder/libnvtx_recorder.so";

// The name of the library's function that writes the events since its last call to `text`, one per line. The line for
// the beginning of a range is "<domain>: <range>", and the line for its end is "end".
inline constexpr const char* kNvtxRecorderTake = "nvtx_recorder_take";
using NvtxRecorderTake = void (*)(char* text, size_t size);

}  // namespace ronda::testing

#endif  // RONDA_TESTS_TESTING_NVTX_RECORDER_NVTX_RECORDER_H_
