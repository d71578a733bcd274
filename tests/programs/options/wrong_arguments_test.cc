// SPDX-License-Identifier: Apache-2.0

// Tests wrong command lines: every error must name the wrong word and show the right form.
#include <ostream>
#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "programs/options/arguments.h"
#include "tests/programs/options/fake_sources.h"

namespace ronda {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Words = std::vector<std::string>;

struct Wrong {
  const char* words;        // separated by bars
  const char* culprit;      // a part of the error
  const char* remedy = "";  // another part of it
};

void PrintTo(const Wrong& wrong, std::ostream* out) { *out << wrong.words; }

Words Split(absl::string_view words) { return absl::StrSplit(words, '|', absl::AllowEmpty()); }

class WrongArgumentsTest : public ::testing::TestWithParam<Wrong> {};

TEST_P(WrongArgumentsTest, AreRefusedWithTheCulpritNamed) {
  const FakeMachine machine{.files = {{"bad.txt", "alpha 4\n"}}};
  const auto options = ParseArguments(Split(GetParam().words), Sources(machine));
  EXPECT_EQ(options.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(options.status().message()),
              AllOf(HasSubstr(GetParam().culprit), HasSubstr(GetParam().remedy)));
}

constexpr Wrong kMissing[] = {{"", "-np is missing", "-np 2"},
                              {"./train", "-np is missing"},
                              {"--dry-run|x", "-np is missing"},
                              {"-np|2", "command is missing"},
                              {"-np|2|--", "command is missing"},
                              {"-np|2|", "command is missing"},
                              {"-np|2|--dry-run", "command is missing"},
                              {"--standalone", "command is missing"},
                              {"--nnodes|2|x", "--node-rank is missing", "--node-rank 0"},
                              {"-np|2|-r|3|x", "--redirects needs a directory", "--log-dir logs"},
                              {"-np|2|-t|1|x", "--tee needs a directory", "--log-dir logs"}};

INSTANTIATE_TEST_SUITE_P(Missing, WrongArgumentsTest, ::testing::ValuesIn(kMissing));

constexpr Wrong kUnknown[] = {{"--nope|x", "unknown option \"--nope\""},
                              {"--nope=3|x", "unknown option \"--nope\""},
                              {"-np=3|x", "unknown option \"-np=3\""},
                              {"--num-procs|2|x", "\"--num-procs\"", "is it --num-proc?"},
                              {"--map-bi|slot|x", "\"--map-bi\"", "is it --map-by?"},
                              {"-np2|x", "unknown option \"-np2\"; is it -np 2?"},
                              {"-np=2|x", "unknown option \"-np=2\"; is it -np 2?"},
                              {"--verbose2|x", "unknown option \"--verbose2\"; is it --verbose?"},
                              {"-|x", "unknown option \"-\""}};

INSTANTIATE_TEST_SUITE_P(Unknown, WrongArgumentsTest, ::testing::ValuesIn(kUnknown));

constexpr Wrong kValues[] = {{"-np|0|x", "got \"0\"", "-np 4"},
                             {"-np|x|x", "got \"x\"", "-np 4"},
                             {"-np|-1|x", "got \"-1\""},
                             {"-np|2.5|x", "got \"2.5\""},
                             {"-np|1025|x", "from 1 to 1024 on one host", "-H"},
                             {"-np|1048577|x", "from 1 to 1048576"},
                             {"-np|99999999999999999999|x", "got \"99999999999999999999\""},
                             {"--num-proc=|x", "got \"\"", "--num-proc 4"},
                             {"-np|4|-hosts|a,b|x", "got \"a\"", "-H localhost:4"},
                             {"-H|localhost|x", "got \"localhost\"", "-H localhost:4"},
                             {"--hostfile|none.txt|x", "--hostfile none.txt: No such file"},
                             {"--hostfile|bad.txt|x", "bad.txt:1: ", "alpha slots=4"},
                             {"-p|0|x", "-p takes a port from 1 to 65535", "-p 22"},
                             {"--ssh-port|ssh|x", "got \"ssh\"", "--ssh-port 22"},
                             {"--ssh-identity-file=|x", "takes a file"},
                             {"--network-interfaces|eth0,,eth1|x", "got \"eth0,,eth1\"", "eth0,eth1"},
                             {"--launcher|slurm|x", "got \"slurm\"", "auto, mpirun, ssh"},
                             {"--launch-agent=|x", "takes a program"},
                             {"--binding|socket|x", "got \"socket\"", "none, core, numa"},
                             {"--numa-binding|exclusive|x", "got \"exclusive\"", "--numa-binding node"},
                             {"--mpi-args|'open|x", "not closed", "--mpi-args takes words"},
                             {"--mpi-args| |x", "is empty"},
                             {"--binding-args|a\\|x", "backslash"},
                             {"-x|1A=2|x", "got \"1A\"", "-x DEBUG=1"},
                             {"-x|=hunter2|x", "got \"\""},
                             {"-x|A B|x", "got \"A B\""},
                             {"-r|4|x", "got \"4\"", "-r 3"},
                             {"-r|0:3,1:1|x", "for all ranks alike", "-r 3"},
                             {"--tee|all|x", "--tee 3"},
                             {"--output-filename=|x", "--output-filename takes a directory", "logs"},
                             {"--max-restarts|-1|x", "got \"-1\"", "--max-restarts 3"},
                             {"--signals-to-handle|SIGKILL|x", "got \"SIGKILL\"", "SIGTERM, SIGINT"},
                             {"--signals-to-handle|SIGTERM,|x", "got \"\""},
                             {"--grace-period|soon|x", "got \"soon\"", "--grace-period 10"},
                             {"--grace-period|-1|x", "got \"-1\""},
                             {"--grace-period|nan|x", "got \"nan\""},
                             {"--grace-period|inf|x", "got \"inf\""}};

INSTANTIATE_TEST_SUITE_P(Values, WrongArgumentsTest, ::testing::ValuesIn(kValues));

constexpr Wrong kSettings[] = {
    {"--fusion-threshold-mb|64MiB|x", "got \"64MiB\"", "--fusion-threshold-mb 64"},
    {"--fusion-threshold-mb|1048577|x", "from 0 to 1048576"},
    {"--cycle-time-ms|1ms|x", "got \"1ms\"", "--cycle-time-ms 1"},
    {"--cycle-time-ms|3600001|x", "to 3600000"},
    {"--cache-capacity|-1|x", "got \"-1\"", "--cache-capacity 1024"},
    {"--autotune-log-file=|x", "--autotune-log-file tuning.csv"},
    {"--timeline-filename=|x", "--timeline-filename trace.json"},
    {"--autotune-steps-per-sample|3|x", "from 4 to 1000"},
    {"--check-numbers=0|x", "from 1 to"},
    {"--check-numbers=often|x", "got \"often\"", "--check-numbers 100"},
    {"--autotune-steps-per-sample|1001|x", "got \"1001\""},
    {"--autotune-gaussian-process-noise|2|x", "from 0 to 1"},
    {"--autotune-warmup-samples|few|x", "got \"few\""},
    {"--num-nccl-streams|many|x", "got \"many\""},
    {"--start-timeout|0|x", "got \"0\"", "--start-timeout 10"},
    {"--start-timeout|86401|x", "to 86400"},
    {"--stall-check-warning-time-seconds|0|x", "from 1 to 2592000"},
    {"--stall-check-shutdown-time-seconds|1m|x", "got \"1m\"", " 600"},
    {"-np|2|--stall-check-warning-time-seconds|9|--stall-check-shutdown-time-seconds|8|x",
     "no more than --stall-check-shutdown-time-seconds", "got 9s and 8s"},
    {"--log-level|loud|x", "got \"loud\"", "info, debug, trace, warning, error, fatal, off"}};

INSTANTIATE_TEST_SUITE_P(Settings, WrongArgumentsTest, ::testing::ValuesIn(kSettings));

constexpr Wrong kNodes[] = {{"--nnodes|0|x", "got \"0\"", "--nnodes 2"},
                            {"--nnodes|1:4|x", "--rdzv-endpoint is missing", "--rdzv-endpoint node0:29400"},
                            {"--nnodes|1:4|--master-port|29400|x", "--rdzv-endpoint is missing"},
                            {"--nnodes|4:1|x", "the smaller number first", "--nnodes 1:4"},
                            {"--nnodes|0:4|x", "got \"0:4\"", "MIN:MAX"},
                            {"--nnodes|1:4:8|x", "got \"1:4:8\""},
                            {"--nnodes|1:65537|x", "got \"1:65537\""},
                            {"--nnodes|1:65536|--nproc-per-node|17|--master|a:1|x", "at most 1048576 ranks"},
                            {"--nnodes|1:4|--master|a:1|--max-restarts|3|x", "--max-restarts and --nnodes MIN:MAX"},
                            {"--nnodes|1:4|--master|a:1|--mpi|x", "--mpi and --nnodes do not go together"},
                            {"--nnodes|1:4|--master|a:1|--tcp|x", "--tcp and --nnodes do not go together"},
                            {"--nnodes|1:4|--master|a:1|--launcher|ssh|x", "--launcher and --nnodes do not"},
                            {"--nnodes|1:4|--master|a:1|--min-np|2|x", "--nnodes and --min-np do not go together"},
                            {"--nnodes|1:4|--master|a:1|--slots-per-host|2|x", "--host-discovery-script lists"},
                            {"--nnodes|2|--node-rank|0|--elastic-timeout|9|x", "for jobs that go on when ranks die"},
                            {"--nnodes|:|x", "got \":\"", "--nnodes 2"},
                            {"--nnodes|two|x", "got \"two\""},
                            {"--nproc-per-node|0|x", "got \"0\"", "auto, cpu, gpu or a number"},
                            {"--nproc-per-node|xpu|x", "got \"xpu\""},
                            {"--nproc-per-node|gpu|x", "no NVIDIA GPU on this host", "--nproc-per-node 2"},
                            {"--nnodes|2|--node-rank|2|x", "from 0 to 1; got \"2\""},
                            {"--node-rank|-1|x", "got \"-1\"", "--node-rank 0"},
                            {"--node-rank|1|x", "from 0 to 0; got \"1\""},
                            {"--master-addr|a/b|x", "got \"a/b\"", "--master-addr node0"},
                            {"--master-addr|a:29500|x", "without a port", "node0 --master-port 29500; got \"a:29500\""},
                            {"--master-addr|[fd00::1]:29500|x", "without a port"},
                            {"--master-port|65536|x", "from 1 to 65535", "--master-port 29500"},
                            {"--master|alpha|x", "got \"alpha\"", "--master node0:29500"},
                            {"--master|etcd://alpha:1|x", "got \"etcd://alpha:1\""},
                            {"--rdzv-endpoint|fd00::1:1|x", "[fd00::1]:29500"},
                            {"--rdzv-backend|etcd-v2|x", "got \"etcd-v2\"", "--rdzv-backend static"},
                            {"--run_mode|ps|x", "got \"ps\"", "--run_mode collective"},
                            {"--ips|10.0.0.1,|x", "got \"10.0.0.1,\"", "--ips 10.0.0.1,10.0.0.2"},
                            {"--ips|a,b,a|x", "a is there twice"},
                            {"--ips|a,-b|x", "got \"a,-b\""},
                            {"--ips|10.0.0.8,10.0.0.9|x", "none of them is this host's", "alpha, 10.0.0.1, fd00::1"},
                            {"--gpus|0,x|x", "got \"0,x\"", "--gpus 0,1"},
                            {"--gpus|1,1|x", "different"},
                            {"--gpus|1024|x", "got \"1024\""},
                            {"-np|3|--gpus|0,1|x", "3 ranks on a host, but --gpus names 2", "-np 2"},
                            {"-np|4|-H|a:3,b:3|--gpus|0,1|x", "3 ranks on a host"}};

INSTANTIATE_TEST_SUITE_P(Nodes, WrongArgumentsTest, ::testing::ValuesIn(kNodes));

constexpr Wrong kElsewhere[] = {{"-np|2|--bind-to|core|x", "--bind-to is not for rondarun", "--binding core"},
                                {"-np|2|--map-by|node|x", "--map-by is not for", "--binding-args \"--map-by node\""},
                                {"-np|2|--mca|btl|tcp|x", "--mca is not for", "--mpi-args \"--mca NAME VALUE\""},
                                {"-N|2|x", "-N is not for", "-H alpha:4,beta:4"},
                                {"--jsrun|-np|2|x", "--jsrun", "-H"},
                                {"-np|4|-ppn|2|-hosts|a,b|x", "-ppn", "-H alpha:4,beta:4"},
                                {"-np|4|-genv|A|1|x", "-genv", "-x NAME=VALUE"},
                                {"--elastic-level|1|x", "--elastic-level", "--min-np N"},
                                {"-m|trainer", "-m is not for rondarun", "python3 -m MODULE"},
                                {"--servers|a:1|x", "--servers", "-np N"},
                                {"--npus|0|x", "--npus", "--gpus"}};

INSTANTIATE_TEST_SUITE_P(Elsewhere, WrongArgumentsTest, ::testing::ValuesIn(kElsewhere));

constexpr Wrong kElastic[] = {
    {"-np|2|--min-np|0|x", "got \"0\"", "--min-np 2"},
    {"-np|2|--min-np|3|x", "--min-np 3, -np 2 and --max-np 2 do not go together"},
    {"-np|4|--max-np|3|x", "--min-np 4, -np 4 and --max-np 3 do not go together"},
    {"-np|4|--max-np|2000|x", "from 1 to 1024 on one host"},
    {"--min-np|2|x", "-np is missing", "-np 2"},
    {"-np|2|--elastic-timeout|60|x", "--elastic-timeout is for jobs that go on", "--min-np 1"},
    {"-np|2|--reset-limit|3|x", "--reset-limit is for jobs that go on", "--min-np 1"},
    {"-np|2|--blacklist-cooldown-range|1|2|x", "--blacklist-cooldown-range is for jobs that go on", "--min-np 1"},
    {"-np|2|--min-np|1|--elastic-timeout|0|x", "got \"0\"", "--elastic-timeout 600"},
    {"-np|2|--min-np|1|--reset-limit|-1|x", "got \"-1\"", "--reset-limit 10"},
    {"-np|2|--min-np|1|--blacklist-cooldown-range|1", "--blacklist-cooldown-range needs a value", "MIN MAX"},
    {"-np|2|--min-np|1|--blacklist-cooldown-range|1|--verbose|x", "got the option --verbose"},
    {"-np|2|--min-np|1|--blacklist-cooldown-range=3|x", "got \"3\"", "--blacklist-cooldown-range 10 100"},
    {"-np|2|--min-np|1|--blacklist-cooldown-range|9|2|x", "the smaller number first"},
    {"-np|2|--min-np|1|--blacklist-cooldown-range|1|x|x", "got \"x\""},
    {"-np|2|--min-mp|1|x", "\"--min-mp\"", "is it --min-np?"},
    {"-np|4|--launcher|mpirun|--min-np|1|x", "--launcher mpirun and --min-np do not go together", "over ssh"},
    {"-np|4|-H|beta:4|--tcp|--min-np|1|x", "--tcp and --min-np do not go together", "leave --tcp out"},
    {"-np|4|--slots-per-host|2|x", "--slots-per-host is for jobs that go on", "--min-np 1"},
    {"-np|4|--min-np|2|--slots-per-host|2|x", "--slots-per-host is for the hosts that a --host-discovery-script lists"},
    {"-np|4|--host-discovery-script|f|-H|a:4|x", "--host-discovery-script and -H do not go together", "give one"},
    {"-np|4|--host-discovery-script|f|--slots-per-host|0|x", "got \"0\"", "--slots-per-host 4"},
    {"-np|4|--min-np|1|--mpi|x", "--min-np and --mpi do not go together", "leave --mpi out"},
    {"-np|4|--min-np|1|--max-restarts|2|x", "--min-np and --max-restarts do not go together", "give one"},
    {"--nproc-per-node|4|--min-np|1|x", "--nproc-per-node and --min-np do not go together",
     "give -np, --min-np and -H"},
};

INSTANTIATE_TEST_SUITE_P(Elastic, WrongArgumentsTest, ::testing::ValuesIn(kElastic));

constexpr Wrong kContradictions[] = {
    {"-H|a:1|--hostfile|bad.txt|x", "-H and --hostfile do not go together", "give one"},
    {"-H|a:1|--host|b:1|x", "-H and --host do not go together", "give one"},
    {"--host|a:1|--hostfile|bad.txt|x", "--host and --hostfile do not go together", "give one"},
    {"--host|a:1,b:1|--nnodes|2|--node-rank|0|x", "a --host list and options for nodes do not", "on every node"},
    {"-np|2|--nproc-per-node|2|x", "-np and --nproc-per-node do not", "give one"},
    {"--nproc_per_node|2|-n|2|x", "--nproc_per_node and -n do not", "give one"},
    {"-np|2|--nnodes|2|x", "-np and --nnodes do not", "--nproc-per-node"},
    {"-np|2|--ips|a,b|x", "-np and --ips do not", "-np and -H"},
    {"-H|a:1|--nnodes|2|x", "-H and --nnodes do not", "on every node"},
    {"--hostfile|f|--node-rank|2|x", "--hostfile and --node-rank do not"},
    {"--ips|a,b|--nnodes|2|x", "--ips and --nnodes do not"},
    {"--ips|a,b|--master|a:1|x", "--ips and --master do not"},
    {"--standalone|--nnodes|2|x", "--standalone and --nnodes do not"},
    {"--rdzv-endpoint|a:1|--master-port|2|x", "--rdzv-endpoint and --master-port do not"},
    {"--binding|core|--binding-args|-v|x", "--binding and --binding-args do not"},
    {"--numa-binding|node|--binding|core|x", "--numa-binding and --binding do not"},
    {"--launch-agent|a|-p|22|x", "--launch-agent and -p do not", "agent takes ssh's place"},
    {"--check|--dry-run|x", "--check and --dry-run do not"},
    {"-np|2|--mpi|--launcher|ssh|x", "--mpi and --launcher ssh do not", "--launcher mpirun"},
    {"-np|2|--launcher|ssh|--tcp|x", "--tcp and --launcher ssh do not", "leave --tcp out"},
    {"--nnodes|2|--node-rank|0|--mpi|x", "--mpi and --nnodes do not", "-np and -H"},
    {"--nnodes|2|--node-rank|0|--launcher|ssh|x", "--launcher and --nnodes do not"}};

INSTANTIATE_TEST_SUITE_P(Contradictions, WrongArgumentsTest, ::testing::ValuesIn(kContradictions));

}  // namespace
}  // namespace ronda
