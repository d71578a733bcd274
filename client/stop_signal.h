#ifndef RONDA_CLIENT_STOP_SIGNAL_H_
#define RONDA_CLIENT_STOP_SIGNAL_H_

namespace ronda {

// SIGTERM as a question to the program instead of its end: schedulers send it some time before they kill a job whose
// machine they take back. What arrives is remembered for as long as the process lives.
//
// Thread-safe.
class StopSignal {
 public:
  StopSignal() = delete;

  // From now on a SIGTERM is noted, and passed on to the handler that the program has installed before, if any. A
  // handler that is installed later takes this one's place. Does nothing the second time.
  static void Arm();

  // Whether one has arrived.
  static bool received();
};

}  // namespace ronda

#endif  // RONDA_CLIENT_STOP_SIGNAL_H_
