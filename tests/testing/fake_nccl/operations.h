#ifndef RONDA_TESTS_TESTING_FAKE_NCCL_OPERATIONS_H_
#define RONDA_TESTS_TESTING_FAKE_NCCL_OPERATIONS_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "runtime/collectives/nccl/nccl_library.h"
#include "tests/testing/fake_nccl/mailboxes.h"

namespace ronda::testing {

// What one call of NCCL's asks for. Pointers are those that the device uses.
struct NcclOperation {
  enum class Kind : uint8_t { kAllReduce, kBroadcast, kAllGather, kSend, kRecv } kind = Kind::kSend;
  const void* input = nullptr;
  void* output = nullptr;
  size_t count = 0;
  NcclDataType type = NcclDataType::kInt8;
  NcclRedOp op = NcclRedOp::kSum;
  int peer = 0;  // or root
};

// Carries out what one rank has grouped: sends and receives all at once, then the collectives one after the other.
// Returns false if it gave up.
bool RunOperations(const std::vector<NcclOperation>& operations, Mailboxes& mailboxes, int rank, int ranks,
                   const std::atomic<bool>& gives_up);

}  // namespace ronda::testing

#endif  // RONDA_TESTS_TESTING_FAKE_NCCL_OPERATIONS_H_
