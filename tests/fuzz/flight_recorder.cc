// SPDX-License-Identifier: Apache-2.0

// Tests how a rank reads a peer's flight recorder, in memory with arbitrary content.
#include "runtime/monitor/flight_recorder.h"

#include <memory>

#include "tests/fuzz/fuzz_input.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using ronda::FlightRecorder;
  ronda::fuzz::FuzzInput input(data, size);
  const auto recorder = std::make_unique<FlightRecorder>();
  char* const memory = reinterpret_cast<char*>(recorder.get());
  while (!input.empty()) {
    const size_t at = input.Number<uint16_t>() % sizeof(FlightRecorder);
    const absl::string_view bytes = input.Text();
    std::memcpy(memory + at, bytes.data(), std::min(bytes.size(), sizeof(FlightRecorder) - at));
  }
  for (const ronda::FlightEvent& event : recorder->Events()) {
    ronda::fuzz::Require(event.name.size() <= FlightRecorder::kNameBytes, "names are within their bounds");
  }
  ronda::fuzz::Require(!DescribeLastEvent(*recorder).empty(), "there is always something to say");
  recorder->Record(ronda::FlightKind::kFailed, ronda::OpType::kBarrier, "after the damage", 0);
  return 0;
}
