#ifndef RONDA_BENCH_MODEL_ALLREDUCE_COST_H_
#define RONDA_BENCH_MODEL_ALLREDUCE_COST_H_

#include "bench/model/log_gp.h"

namespace ronda::bench::model {

// Hosts with `local_size` ranks each, the last one perhaps with fewer. A host's ranks share one port to the network,
// which sends and receives at the same time.
struct Cluster {
  int local_size = 8;
  LogGP host;     // between ranks of one host; its G includes adding what has arrived
  LogGP network;  // between hosts
};

enum class Algorithm {
  kRing,          // reduce-scatter and allgather around a ring of all ranks
  kTree,          // two pipelined binary trees, each with half of the bytes
  kHierarchical,  // reduce-scatter on each host, allreduce between hosts, allgather on each host, chunk by chunk
};

// "ring", "tree", "hierarchical".
const char* AlgorithmName(Algorithm algorithm);

// Seconds of one allreduce of `bytes`, if all ranks begin at the same time. Formulas, with n bytes, p ranks, h hosts of
// l ranks and alpha = L + 2o:
//
//   ring          2 ((p - h) alpha_host + (h - 1) alpha_network) + 2 (p - 1) n/p G, but at least 2 (p - 1) g
//   tree          with d hops from the leaves to the root and back, whose alphas add up to A, in k chunks:
//                 A + d 2 n/k G + (k - 1) max(g, 2 n/k G), with the best k
//   hierarchical  with S(n) = (l - 1) alpha_host + (l - 1)/l n G_host for each phase on the host, N(n) the cheaper of
//                 ring and tree between h ranks, in k chunks: 2 S(n/k) + N(n/k) + (k - 1) max(2 S(n/k), N(n/k)), with
//                 the best k
//
// Ring: Thakur, Rabenseifner and Gropp, "Optimization of collective communication operations in MPICH" (IJHPCA 2005),
// with the latencies of two kinds of hops counted as NCCL's tuning model does; g and G are those of the slowest link.
// Tree: Sanders, Speck and Traff, "Two-tree algorithms for full bandwidth broadcast, reduction and scan" (Parallel
// Computing 2009): an inner node of one tree is a leaf of the other, so a port carries 2 n in either direction. The
// lower levels of the trees are on the host.
//
// REQUIRES: ranks >= 1, local_size >= 1, bytes >= 0. A single rank needs no time.
double AllreduceTime(Algorithm algorithm, const Cluster& cluster, int ranks, double bytes);

}  // namespace ronda::bench::model

#endif  // RONDA_BENCH_MODEL_ALLREDUCE_COST_H_
