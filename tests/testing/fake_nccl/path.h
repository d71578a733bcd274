// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_TESTS_TESTING_FAKE_NCCL_PATH_H_
#define RONDA_TESTS_TESTING_FAKE_NCCL_PATH_H_

#include <cstdint>
#include <string>

#include "tests/testing/fake_nccl/communicator.h"

namespace ronda::testing {

// The facts about a call from which NCCL chooses the path of its data: whether the buffers are registered or in
// symmetric windows, and their offsets in the registered memory. NCCL assumes that these facts are the same on all
// ranks of a communicator, and that the ranks use the same window. The user guide says: "mixing registered and
// non-registered buffers can result in undefined behavior" (chapter on registration). For symmetric windows "the offset
// to the buffer head address from all ranks must be equal" (chapter on flags).
struct NcclPath {
  struct Buffer {
    enum class Kind : uint8_t { kUnregistered, kRegistered, kWindow } kind = Kind::kUnregistered;
    uint64_t window = 0;  // the number of the window, in the order in which the communicator got them
    uint64_t offset = 0;  // bytes from the beginning of the registered memory
  };
  NcclOperation::Kind kind = NcclOperation::Kind::kSend;
  Buffer input;
  Buffer output;

  // Returns whether NCCL would use a kernel for symmetric windows.
  bool IsSymmetric() const { return input.kind == Buffer::Kind::kWindow && output.kind == Buffer::Kind::kWindow; }

  // Returns a number that identifies the path. The send and the receive of a transfer have the same number.
  uint64_t Encode() const;
};

// Returns a name such as "AllReduce", "Send" or "Recv".
const char* NameOf(NcclOperation::Kind kind);

// Describes an encoded path, for example as "AllReduce from registered memory at 64 to memory that is not registered".
std::string PathText(uint64_t path);

}  // namespace ronda::testing

#endif  // RONDA_TESTS_TESTING_FAKE_NCCL_PATH_H_
