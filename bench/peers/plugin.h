// The functions that a peer's plugin is made of. A plugin's source file defines all of them; plugin_table.cc, which is
// linked with it, hands them out as the table of peer.h, which also says what each of them does.
#ifndef RONDA_BENCH_PEERS_PLUGIN_H_
#define RONDA_BENCH_PEERS_PLUGIN_H_

#include "bench/peers/peer.h"

namespace ronda::bench::plugin {

using Call = ronda_bench_call;
using Prepared = ronda_bench_prepared;

int Init(int rank, int size, const char* directory);
const char* Description();
int AlgorithmCount(const Call* call);
const char* AlgorithmName(const Call* call, int algorithm);
Prepared* Prepare(const Call* call, int algorithm);
int Run(Prepared* prepared);
void Release(Prepared* prepared);
void Finalize();
const char* LastError();

}  // namespace ronda::bench::plugin

#endif  // RONDA_BENCH_PEERS_PLUGIN_H_
