// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_TESTS_TESTING_FAKE_NCCL_PATH_H_
#define RONDA_TESTS_TESTING_FAKE_NCCL_PATH_H_

#include <cstdint>
#include <string>

#include "tests/testing/fake_nccl/communicator.h"

namespace ronda::testing {

// The facts by which NCCL chooses the path of the data: whether the buffers of a call are registered, and where in the
// registered memory they begin. NCCL assumes that these are the same on all ranks of a communicator, for every call
// ("mixing registered and non-registered buffers can result in undefined behavior", the user guide's chapter on
// registration).
struct NcclPath {
  struct Buffer {
    bool is_registered = false;
    uint64_t offset = 0;  // bytes from the beginning of the registered memory
  };
  NcclOperation::Kind kind = NcclOperation::Kind::kSend;
  Buffer input;
  Buffer output;

  // Returns a number that is the same on both ends of a transfer. A receive gets the number of its send.
  uint64_t Encode() const;
};

// "AllReduce"; "Send" or "Recv" for a send or a receive.
const char* NameOf(NcclOperation::Kind kind);

// Returns the text for an encoded path: "AllReduce from registered memory at 64 to memory that is not registered".
std::string PathText(uint64_t path);

}  // namespace ronda::testing

#endif  // RONDA_TESTS_TESTING_FAKE_NCCL_PATH_H_
