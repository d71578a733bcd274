#ifndef RONDA_RUNTIME_COLLECTIVES_STREAM_MARKS_H_
#define RONDA_RUNTIME_COLLECTIVES_STREAM_MARKS_H_

#include <cstdint>

#include "absl/status/status.h"

namespace ronda {

// What a device does for a bucket, in parts that a timeline tells apart.
enum class StreamPhase : uint8_t {
  kWaitForData,  // for streams of the trainer's
  kPack,         // tensors to the wire: copied, scaled, converted
  kTransfer,     // between ranks, what NCCL reduces on the way included
  kReduce,       // what Ronda reduces itself
  kUnpack,       // the wire to tensors
};

// Notes on a device's own clock when it has come to a point of its stream.
//
// Thread-compatible: used by who puts work on the stream.
class StreamMarks {
 public:
  virtual ~StreamMarks() = default;

  // What the stream has been given since the mark before was `phase`. Costs nothing unless a timeline is written. A
  // mark that cannot be made is left out: it is not worth a failure.
  virtual void Mark(StreamPhase phase) = 0;
};

// `status`, of what has put `phase` on the stream, with a mark behind it; `marks` may be nullptr.
inline absl::Status Marked(StreamMarks* marks, StreamPhase phase, absl::Status status) {
  if (marks != nullptr && status.ok()) marks->Mark(phase);
  return status;
}

}  // namespace ronda

#endif  // RONDA_RUNTIME_COLLECTIVES_STREAM_MARKS_H_
