#ifndef RONDA_RUNTIME_LAUNCH_STREAM_H_
#define RONDA_RUNTIME_LAUNCH_STREAM_H_

namespace ronda {

// The two output streams of a rank.
enum class Stream { kStdout = 0, kStderr = 1 };
inline constexpr int kStreamCount = 2;

constexpr const char* Name(Stream stream) { return stream == Stream::kStdout ? "stdout" : "stderr"; }

// What reads what the launcher writes: only a terminal can show a line being redrawn in place.
enum class Medium { kFile, kTerminal };

}  // namespace ronda

#endif  // RONDA_RUNTIME_LAUNCH_STREAM_H_
