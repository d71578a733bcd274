#ifndef RONDA_BENCH_MODEL_LOG_GP_H_
#define RONDA_BENCH_MODEL_LOG_GP_H_

namespace ronda::bench::model {

// What it costs to send messages over one kind of link: the parameters of LogGP (Alexandrov, Ionescu, Schauser and
// Scheiman, "LogGP: incorporating long messages into the LogP model", SPAA 1995). In seconds.
struct LogGP {
  double latency = 0;       // L: from the sender's port to the receiver's
  double overhead = 0;      // o: of a processor, for each message it sends and each that it receives
  double gap = 0;           // g: the shortest time between two messages of one port
  double gap_per_byte = 0;  // G: the same for each byte of a long message; 1 / bandwidth
};

// From the call that sends to the one that has received, without the bytes: L + 2o. Others call it alpha.
inline double MessageLatency(const LogGP& link) { return link.latency + 2 * link.overhead; }

}  // namespace ronda::bench::model

#endif  // RONDA_BENCH_MODEL_LOG_GP_H_
