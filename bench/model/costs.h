// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_BENCH_MODEL_COSTS_H_
#define RONDA_BENCH_MODEL_COSTS_H_

namespace ronda::bench::model {

// The cost of messages over one kind of link. The fields are the LogGP parameters, in seconds (Alexandrov, Ionescu,
// Schauser and Scheiman, "LogGP: incorporating long messages into the LogP model", SPAA 1995).
struct LogGP {
  double latency = 0;       // L: from the sender's port to the receiver's
  double overhead = 0;      // of a processor, for each message that it sends or receives
  double gap = 0;           // g: the shortest time between two messages of one port
  double gap_per_byte = 0;  // G: the same for each byte of a long message; 1 / bandwidth
};

// Returns how long an empty message takes, from the start of the send call to the end of the receive call. This time is
// L + 2o, also called alpha.
inline double MessageLatency(const LogGP& link) { return link.latency + 2 * link.overhead; }

// Hosts with `local_size` ranks each; the last host may have fewer ranks. The ranks of a host share one network port,
// which can send and receive at the same time.
struct Cluster {
  int local_size = 8;
  LogGP host;     // between ranks of one host; its G includes the addition
  LogGP network;  // between hosts
};

enum class Algorithm {
  kRing,          // reduce-scatter and allgather around a ring of all ranks
  kTree,          // two pipelined binary trees, each with half of the bytes
  kHierarchical,  // reduce-scatter on each host, allreduce between hosts, allgather on each host, chunk by chunk
};

constexpr const char* Name(Algorithm algorithm) {
  constexpr const char* kNames[] = {"ring", "tree", "hierarchical"};
  return kNames[static_cast<int>(algorithm)];
}

// Returns the seconds that one allreduce of `bytes` takes if all ranks start at the same time. Formulas, with n bytes,
// p ranks, h hosts of l ranks and alpha = L + 2o:
//
//   ring          2 ((p - h) alpha_host + (h - 1) alpha_network) + 2 (p - 1) n/p G, but at least 2 (p - 1) g
//   tree          with d hops from the leaves to the root and back, whose alphas add up to A, in k chunks:
//                 A + d 2 n/k G + (k - 1) max(g, 2 n/k G), with the best k
//   hierarchical  with S(n) = (l - 1) alpha_host + (l - 1)/l n G_host for each phase on the host, N(n) the cheaper of
//                 ring and tree between h ranks, in k chunks: 2 S(n/k) + N(n/k) + (k - 1) max(2 S(n/k), N(n/k)), with
//                 the best k
//
// Ring: Thakur, Rabenseifner and Gropp, "Optimization of collective communication operations in MPICH" (IJHPCA 2005).
// Hops within a host and hops between hosts have different latencies, which are counted as in NCCL's tuning model; g
// and G are those of the slowest link. Tree: Sanders, Speck and Traff, "Two-tree algorithms for full bandwidth
// broadcast, reduction and scan" (Parallel Computing 2009): an inner node of one tree is a leaf of the other tree, so a
// port carries 2 n in either direction. The lower levels of the trees are within a host.
//
// REQUIRES: ranks >= 1, local_size >= 1, bytes >= 0. With a single rank, the time is 0.
double AllreduceTime(Algorithm algorithm, const Cluster& cluster, int ranks, double bytes);

// How the ranks agree on which tensors to reduce next.
enum class Coordination {
  kNegotiated,  // rank 0 receives every tensor's description from every rank, and answers in full
  kCached,      // the same with ids of the response cache
  kLocked,      // the order is known, and only a vote travels with the data
};

constexpr const char* Name(Coordination coordination) {
  constexpr const char* kNames[] = {"negotiated", "cached", "locked"};
  return kNames[static_cast<int>(coordination)];
}

// The cost of one round of agreement for rank 0. Rank 0 receives a report from each rank in turn, and then sends a list
// to each rank in turn. So the time that rank 0 needs is linear in the number of ranks.
struct CoordinationCosts {
  double round = 0;             // seconds of rank 0's CPU, whatever the number of tensors
  double submission = 0;        // seconds of rank 0's CPU for each rank and tensor, cached or not
  double submission_bytes = 0;  // of the report and the list together, per rank and tensor
};

// Returns the costs that `ronda-bench negotiation` measured; docs/scaling_model.md shows the figures. REQUIRES: not
// kLocked.
CoordinationCosts MeasuredCosts(Coordination coordination);

// Returns how many seconds rank 0 is busy with one round in which `ranks` ranks agree on `tensors` tensors. With a
// locked schedule, or with a single rank, a round costs nothing.
double RoundBusyTime(Coordination coordination, const LogGP& network, int ranks, int tensors);

// Returns the additional seconds that a round takes while the last report and the last list travel.
double RoundLatency(Coordination coordination, const LogGP& network, int ranks);

// Returns the measured cost of messages that do not fit into the caches, over shared memory between ranks of one host.
// It is a least-squares fit to tests/bench/model/testdata/allreduce_2_ranks.txt (docs/scaling_model.md).
LogGP MeasuredHost();

// The assumed fraction of a link's nominal bandwidth that large messages reach. This fraction is calibrated with a
// published figure (predictions.h).
inline constexpr double kLinkEfficiency = 0.83;

// Returns the assumed message cost on a network of `gbit` Gbit/s whose hardware moves the bytes without the CPU, such
// as RoCE or InfiniBand.
LogGP AssumedNetwork(double gbit);

// The assumed time of the forward and backward pass for one rank's batch on an accelerator of the 2020s, in seconds.
inline constexpr double kResNet50Compute = 0.15;
inline constexpr double kBertLargeCompute = 0.3;

}  // namespace ronda::bench::model

#endif  // RONDA_BENCH_MODEL_COSTS_H_
