#include "runtime/collectives/hierarchical/host_ground.h"

#include <cstring>

namespace ronda {

absl::Status HostGround::Scatter(const char* gathered, DType dtype, absl::Span<const Piece> pieces) {
  for (const Piece& piece : pieces) std::memcpy(piece.to, gathered + piece.offset, piece.count * SizeOf(dtype));
  return absl::OkStatus();
}

char* HostGround::AtLeast(size_t bytes, std::vector<char>& memory) {
  if (memory.size() < bytes) memory.resize(bytes);
  return memory.data();
}

}  // namespace ronda
