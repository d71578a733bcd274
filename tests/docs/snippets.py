# SPDX-License-Identifier: Apache-2.0

"""Defines how the tests run each block of the pages.

A new block needs an entry in one of these tables: PYTHON, CPP, SHELL, or NOT_RUN with the reason.
"""

from __future__ import annotations

import dataclasses

from blocks import programs


@dataclasses.dataclass(frozen=True)
class Snippet:
    """A block of a page, identified by its first words, and the program around the block.

    Attributes:
        begins: the first words of the block.
        before: the part of the program before the block.
        after: the part of the program after the block, which checks the result.
    """

    begins: str
    before: str = ""
    after: str = ""

    def program(self) -> str:
        """Returns the program with the block. If several pages have the block, it must be the same
        on all of them.
        """
        return self.before + self.text() + self.after

    def text(self) -> str:
        [text] = {block.text for block in programs() if block.begins(self.begins)}
        return text


@dataclasses.dataclass(frozen=True)
class CppSnippet(Snippet):
    """A block of C++. `before` is outside of any function.

    Attributes:
        within: the statements before the block.
        libtorch: the block needs libtorch.
    """

    within: str = ""
    libtorch: bool = False

    def includes(self) -> list[str]:
        """Returns the #include lines of the block and of the program before it."""
        return [line for line in (self.before + self.text()).splitlines() if line.startswith("#")]

    def function(self, space: str) -> str:
        """Returns the block without its #include lines, as a function in the namespace `space`."""
        lines = f"{self.before}\nvoid f() {{\n{self.within}{self.text()}}}\n".splitlines(True)
        body = "".join(line for line in lines if not line.startswith("#"))
        return f"namespace {space} {{\n{body}}}  // namespace {space}\n"


@dataclasses.dataclass(frozen=True)
class ShellSnippet(Snippet):
    """A block of commands for bash.

    Attributes:
        dry: rondarun only prints what it would start, because the block's hosts do not exist.
        without: the first words of the lines that the test leaves out, with the reasons.
        port: a port in the block that the test replaces with a free port.
    """

    dry: bool = False
    without: dict[str, str] = dataclasses.field(default_factory=dict)
    port: str = ""

    def program(self) -> str:
        lines = self.text().splitlines(True)
        for words in self.without:
            kept = [line for line in lines if not line.startswith(words)]
            assert kept != lines, f"no line of '{self.begins}' begins with '{words}': remove it"
            lines = kept
        return self.before + "".join(lines)


_TORCH = """
import os
import torch
import torch.distributed
model = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
dataset = torch.utils.data.TensorDataset(torch.arange(8.0).reshape(4, 2))
"""
# A training step, and a check that all ranks have the same parameters after the step.
_STEP = """
import os as _os
model(torch.full((1, 2), float(_os.environ["RONDA_RANK"]) + 1)).sum().backward()
optimizer.step()
import ronda as _ronda
_ronda.init()
_bias = [p.detach().sum().item() for p in model.parameters()]
_sums = _ronda.allgather_object(_bias)
assert _sums[0] == _sums[1], _sums
"""
_DDP_STEP = _STEP.replace("optimizer.step()", "torch.optim.SGD(model.parameters(), 0.1).step()")

PYTHON = [
    Snippet("import torch, torch.distributed, ronda.torch.c10d ", _TORCH, _DDP_STEP),
    Snippet("import ronda.torch.c10d # makes", _TORCH, _DDP_STEP),
    Snippet("import ronda.torch.c10d # new", _TORCH, _DDP_STEP),
    Snippet("import ronda.torch as hvd # in", _TORCH, _STEP),
    Snippet(
        "import ronda.torch as hvd hvd.init() ",
        _TORCH
        + "from torch.utils.data.distributed import DistributedSampler\n"
        + "torch.cuda.set_device = lambda device: None\n",
        _STEP + "assert len(sampler) == 2\n",
    ),
    Snippet(
        "import ronda.torch as hvd import torch ",
        "import torch\ntorch.cuda.set_device = lambda device: None\n"
        "torch.nn.Module.cuda = lambda module: module\n"
        "def make_model(): return torch.nn.Linear(2, 1)\n",
        _STEP.replace("import os", "hvd.broadcast_parameters(model.state_dict(), 0)\nimport os"),
    ),
    Snippet(
        "import numpy as np, ronda ",
        after="assert mean.tolist() == [0.5, 1.5, 2.5, 3.5], mean\n",
    ),
    Snippet(
        "import numpy as np import ronda ",
        after="assert result.tolist() == [1.0, 3.0, 5.0, 7.0], result\n"
        "assert rows.shape == (3, 2) and settings == {'seed': 7}\n",
    ),
    Snippet(
        "@hvd.elastic.run ",
        _TORCH + "import ronda.torch as hvd\nhvd.init()\nepochs, batches = 2, 3\n",
        "assert hvd.size() == 2\n",
    ),
    Snippet(
        "from ronda.torch.ddp_hook import",
        _TORCH + "import ronda.torch.c10d\n"
        "torch.distributed.init_process_group('ronda')\n"
        "model = torch.nn.parallel.DistributedDataParallel(model)\n"
        "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "class loss:\n"
        "    backward = lambda: model(torch.ones(1, 2)).sum().backward()\n",
    ),
]

# Blocks of programs that start as one process, and then start their own ranks.
PYTHON_ALONE = [
    Snippet(
        "def mean_of_ranks(factor):",
        "import ronda\n",
        "assert ronda.run(mean_of_ranks, (10.0,), np=4) == [15.0] * 4\n",
    ),
]

_BASICS = """
#include <cstdint>
#include <iostream>
#include <vector>
#include "ronda.hpp"
std::vector<float> w(4);
"""
_NET = """
struct NetImpl : torch::nn::Module {
  torch::Tensor forward(torch::Tensor x) { return x; }
};
TORCH_MODULE(Net);
torch::Tensor loss(torch::Tensor a, torch::Tensor b) { return (a - b).sum(); }
auto dataset = torch::data::datasets::MNIST("x").map(torch::data::transforms::Stack<>());
"""
_TORCH_BASICS = (
    "#include <ronda.hpp>\n#include <ronda/torch.hpp>\n#include <torch/torch.h>\n" + _NET
)
_BATCHES = """
  Net net;
  torch::optim::Adam adam(net->parameters(), 1e-3);
  auto loader = torch::data::make_data_loader(dataset, 32);
"""

CPP = [
    CppSnippet(
        "ronda::elastic::Sampler sampler(60000",
        _BASICS
        + """#include "ronda/elastic.hpp"
struct Sgd {
  void step() {}
  std::vector<ronda::Tensor> state() { return {}; }
};
struct Model {
  std::vector<ronda::Tensor> tensors() { return {}; }
  std::vector<ronda::Tensor> gradients() { return {}; }
  template <class Ready>
  void backward(const std::vector<std::int64_t>&, std::int64_t, const Ready&) {}
};
""",
        within="Sgd sgd; Model model; std::int64_t progress = 0;\n",
    ),
    CppSnippet(
        "ronda::Options options; options.place",
        _BASICS
        + "void train(); ronda::Options::Place place_among_the_members(); extern int rank, size;\n",
    ),
    CppSnippet(
        "std::vector<float> weights(ronda::size()", _BASICS + "std::vector<float> shard(2);\n"
    ),
    CppSnippet(
        "ronda::PreparedGroup gradients",
        _BASICS + "void backward(std::size_t); extern std::vector<ronda::Tensor> tensors;\n",
    ),
    CppSnippet("ronda::ProcessSet even", _BASICS),
    CppSnippet("if (ronda::rank() % 2 == 0) even", _BASICS + "ronda::ProcessSet even;\n"),
    CppSnippet(
        'ronda::allreduce(ronda::tensor("", loss)', _BASICS + "std::vector<float> loss(1);\n"
    ),
    CppSnippet(
        "while (reader.next(&batch))",
        _BASICS + "struct Reader { bool next(int*); } reader; void train(int);\n"
        "extern std::vector<ronda::Tensor> parameters; int batch = 0;\n",
    ),
    CppSnippet(
        "ronda::run_threads(4",
        _BASICS + '#include "ronda/threads.hpp"\nint shard(int, int); void train(int);\n',
    ),
    CppSnippet("ronda::DistributedOptimizerOptions options;", _BASICS),
    CppSnippet("#include <ronda.hpp> #include <ronda/torch.hpp>", _NET, libtorch=True),
    CppSnippet(
        "{ const auto guard = model.no_sync();",
        _TORCH_BASICS,
        within=_BATCHES
        + "ronda::torch::DistributedDataParallel model(net);\n"
        + "torch::data::Example<> first, second;\n",
        libtorch=True,
    ),
    CppSnippet(
        "ronda::torch::DistributedDataParallelOptions options; options.uneven_inputs",
        _TORCH_BASICS + "void train(torch::data::Example<>&);\n",
        within=_BATCHES,
        libtorch=True,
    ),
]

# 40 samples per rank and epoch, in batches of 32 and 8. The second run resumes after the last step.
_TRAINING = Snippet(
    "ronda::training::DistributedSampler sampler(images",
    before="""
#include <cstring>
#include <iostream>
#include <stdexcept>
#include <ronda.hpp>
#include <ronda/training.hpp>
std::vector<int> images(80);
float weight = 0;
std::vector<ronda::Tensor> state = {ronda::tensor("weight", &weight)};
template <typename Samples> double train(const Samples& samples, double) {
  if (samples.empty()) throw std::runtime_error("the batch is empty");
  weight += samples.size();
  return 0;
}
void run() {
""",
    after="""
  std::cout << "after step " << resumed.step << ": " << weight << " samples, epoch "
            << sampler.state().epoch << std::endl;
}
int main() {
  const ronda::Job job;
  run();
  weight = 0;
  run();
}
""",
)

# Programs, with the expected output of rank 0. The tests compile and link each program, and run it
# on two ranks.
CPP_PROGRAMS = {
    Snippet("#include <ronda.hpp> #include <cstdio>"): "w[0] = 0.500",
    _TRAINING: "[0]<stdout>: after step 9999: 200000 samples, epoch 4999\n",
}

_SLURM = "needs Slurm: tests/python/slurm runs rondarun in an allocation"
_HOSTS = "the hosts do not exist: tests/hosts checks hosts"
_ADDRESSES = "the addresses are not this host's: tests/programs/rondarun/options tests --ips"
_SECRET = "export RONDA_JOB_SECRET=f00d\n"  # the page tells the reader to set it
_MPI = "the hosts do not exist: tests/multiprocess/launcher_mpirun_test starts ranks by mpirun"

SHELL = [
    ShellSnippet("rondarun -np 2 --autotune "),
    ShellSnippet("export WORLD_SIZE=2 MASTER_PORT=29500", port="29500"),
    ShellSnippet("rondarun -np 4 --min-np 2 ./trainer ", dry=True),
    ShellSnippet(
        "rondarun --check -H alpha:4,beta:4 # can",
        dry=True,
        without={"rondarun --check": _HOSTS, "salloc": _SLURM, "mpirun": _MPI},
    ),
    ShellSnippet("python3 -m ronda.launch --nproc_per_node 4 train.py --epochs 3 "),
    ShellSnippet(
        "rondarun -np 2 ./train # on", _SECRET, dry=True, without={"rondarun --ips": _ADDRESSES}
    ),
    ShellSnippet("rondarun -np 4 --min-np 2 ./train ", dry=True),
    ShellSnippet("rondarun --nnodes 2 --nproc-per-node 2 --rdzv-endpoint node0", _SECRET, dry=True),
    ShellSnippet(
        "rondarun --nnodes 1:4 --nproc-per-node 2 --rdzv-endpoint node0", _SECRET, dry=True
    ),
    ShellSnippet("rondarun --check # this host", without={"rondarun --check -H": _HOSTS}),
    ShellSnippet("rondarun -np 2 --timeline-filename trace.json "),
    ShellSnippet("RONDA_STALL_WARNING=5s RONDA_STALL_DEADLINE=30s rondarun"),
    ShellSnippet("rondarun --check-numbers -np 4"),
    ShellSnippet("rondarun -np 2 python3 train.py "),
    ShellSnippet("RONDA_REPLACE_BACKEND=gloo,nccl rondarun -np 2 python3"),
]

_OUTPUT = "shows output"
_DIAGRAM = "is a diagram"
_SUBSET = "shows the forms of a command: tests/runtime/monitor tests each"
_MINUTES = "takes minutes or more; tests/bench runs each command of ronda-bench with small sizes"
_SLURM_TEST = "needs Slurm: tests/python/slurm/slurm_test runs it"
_PACKAGED = "builds a package: the tests of tests/install do that"
_EXAMPLE_HOSTS = "the hosts do not exist: tests/multiprocess tests these options"
_NEEDS_GPU = "needs a GPU"
_PROJECT = "needs another project: tests/python/frameworks runs such a program"

# The first words of each block that no test in this folder runs, with the reason.
_JAX = "needs JAX: tests/python/jax runs examples/jax_mnist.py, which has these lines"
_JAX_ELASTIC = "needs JAX: the elastic job of tests/python/jax/elastic_test.py has these lines"
_KERAS = "needs Keras: tests/python/keras runs examples/keras_mnist.py, which has these lines"
_KERAS_ELASTIC = (
    "needs Keras: the elastic job of tests/python/keras/program_test.py has these lines"
)
_TENSORFLOW = "needs TensorFlow: tests/python/tensorflow runs examples/tensorflow_mnist.py"
_JAX_KILL = "needs JAX, and a rank that dies: tests/python/jax/program_test.py kills one"

NOT_RUN = {
    "import jax, optax": _JAX,
    "pip install dist/ronda-*.whl jax optax": _JAX,
    "try: params, state, mean = train_step": _JAX_KILL,
    "state = rj.elastic.JaxState": _JAX_ELASTIC,
    "import ronda.keras as hvd": _KERAS,
    "state = hvd.elastic.KerasState": _KERAS_ELASTIC,
    "import ronda.tensorflow as hvd": _TENSORFLOW,
    "make demo #": "builds the project: tests/examples runs the trainer",
    "python3 -m venv": _PACKAGED,
    "make wheel #": _PACKAGED,
    "make install PREFIX=": _PACKAGED,
    "rj.init() jax.config.update": _NEEDS_GPU,
    "for module in model.modules(): if isinstance(module, FSDPModule)": _NEEDS_GPU,
    "backend = group._get_backend(device)": _NEEDS_GPU,
    "mpirun -np 2 python3 bench/python/jax_collectives.py": _MINUTES,
    "PYTHONPATH=.bazel/bin/client/python/package": _MINUTES,
    "ronda-bench collectives -np 2 --peer": _MINUTES,
    "mkdir sweep": _MINUTES,
    "mkdir advice": _MINUTES,
    "make suites": "takes hours",
    "make simulate SECONDS=600": "takes minutes; tests/simulation runs scenarios",
    "trainer thread ": _DIAGRAM,
    "a rank submits it": _DIAGRAM,
    "coordinator: enough identical": _DIAGRAM,
    "proto, kernels": _DIAGRAM,
    "ranks differ: in step 300": _OUTPUT,
    "ronda[0] I data goes over": _OUTPUT,
    "rondarun: member 1 (pid": _OUTPUT,
    "rondarun: rank 2 (host": _OUTPUT,
    "rondarun: epoch 2: rank 1": _OUTPUT,
    "problem: beta has Ronda": _OUTPUT,
    "$ ronda-monitor --grpc": _OUTPUT,
    "$ rondactl jobs": _OUTPUT,
    "$ rondactl trace on": _OUTPUT,
    "rondactl jobs ": _SUBSET,
    "rondactl why <end>": _SUBSET,
    "rondarun --check -H alpha:4,beta:4 <end>": _HOSTS,
    "rondarun --monitor -np 4": _SUBSET,
    "node2$ ronda-monitor": _EXAMPLE_HOSTS,
    "export RONDA_JOB_SECRET=$(openssl rand -hex 32) srun -N 4": _SLURM,
    "salloc -N 2 -n 8 rondarun ./train": _SLURM,
    "kubectl create secret": "needs a cluster: tests/python/kubernetes checks the commands of pods",
    "export RONDA_JOB_SECRET=$(openssl rand -hex 32) srun --nodes 2": _SLURM_TEST,
    "RONDA_MPI=1 srun": _SLURM_TEST,
    "#!/bin/bash #SBATCH --job-name=train": _SLURM_TEST,
    "#!/bin/bash #SBATCH --job-name=nodes": _SLURM_TEST,
    "#!/bin/bash #SBATCH --job-name=elastic": _SLURM_TEST,
    "#!/bin/bash host=$1": _SLURM_TEST,
    "sbatch ": _SLURM_TEST,
    "scancel ": _SLURM_TEST,
    "scontrol ": _SLURM_TEST,
    "chmod +x agent.sh": _SLURM_TEST,
    "g++ -std=c++17 train.cc -o train $(pkg-config": _PACKAGED,
    "torch=$(python3 -c": "tests/client/libtorch/any_libtorch_test compiles with any libtorch",
    "RONDA_REPLACE_BACKEND=gloo rondarun -np 2 python3 -m ronda.torch.c10d run_glue.py": _PROJECT,
    "import ronda.torch.frameworks.transformers": _PROJECT,
    "import ray ": _PROJECT,
    "from ronda.torch.frameworks.torchft": _PROJECT,
    "from ronda.paddle import fleet": "needs Paddle: tests/python/paddle trains with these calls",
    "import ronda.torch.c10d # 1": _NEEDS_GPU,
    "total = ronda.allreduce(array, out=cupy": _NEEDS_GPU,
    'ronda::broadcast_parameters({ronda::cuda_tensor("w"': "needs nvcc",
    "ronda::torch::data_parallel(4, net": 'has "..." in it: data_parallel_test has such a program',
    "from torch.distributed import distributed_c10d": "needs another rendezvous: "
    "tests/python/torch tests reconfiguration",
    "def field(value: bytes)": "needs a monitor with gRPC: tests/hosts/monitor_hosts_test asks one",
}
